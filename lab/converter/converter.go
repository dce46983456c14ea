// Package converter is the conversion webhook of a custom resource whose versions differ in name only. A scenario runs it on the
// cloud's network. When the scenario ends it, nothing answers at its address.
package converter

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Command is the name of the yurtlab command that runs Main.
const Command = "converter"

// Order tells Main what to do, as a line of JSON on its standard input.
type Order struct {
	// Listen is the TCP address to serve TLS on.
	Listen string `json:"listen"`
	// Cert and Key are the files of the certificate to show.
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// Report is what a converter has done.
type Report struct {
	// Converted are the objects that it has converted.
	Converted int64 `json:"converted"`
}

// Main carries out an order, and writes a byte when it serves. When its input ends it writes a Report.
func Main(ctx context.Context, o Order, in io.Reader, out io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return err
	}
	c := &converter{}
	server := &http.Server{
		Handler: c, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0), // clients come and go
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(l, o.Cert, o.Key) }()
	if _, err = out.Write([]byte{'\n'}); err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	err = errors.Join(err, server.Close())
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, json.NewEncoder(out).Encode(Report{Converted: c.converted.Load()}))
}

type converter struct{ converted atomic.Int64 }

// review is a ConversionReview of apiextensions.k8s.io/v1.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID               string           `json:"uid"`
	DesiredAPIVersion string           `json:"desiredAPIVersion"`
	Objects           []map[string]any `json:"objects"`
}

type response struct {
	UID              string           `json:"uid"`
	ConvertedObjects []map[string]any `json:"convertedObjects"`
	Result           map[string]any   `json:"result"`
}

func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var v review
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil || v.Request == nil {
		http.Error(w, "want a ConversionReview with a request", http.StatusBadRequest)
		return
	}
	for _, o := range v.Request.Objects {
		o["apiVersion"] = v.Request.DesiredAPIVersion
	}
	c.converted.Add(int64(len(v.Request.Objects)))
	v.Response = &response{
		UID: v.Request.UID, ConvertedObjects: v.Request.Objects, Result: map[string]any{"status": "Success"},
	}
	v.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}
