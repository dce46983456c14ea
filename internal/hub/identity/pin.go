package identity

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

const (
	// nameOwn is the file of the certificate that kubelet makes for itself. nameBootstrapped is the file of the certificate that
	// the cluster signs for kubelet, followed by its key. kubelet uses both names in its --cert-dir.
	nameOwn, nameBootstrapped = "kubelet.crt", "kubelet-server-current.pem"
	// maxSettings and maxCertificate bound what is read, in bytes.
	maxSettings, maxCertificate = 1 << 20, 64 << 10
	// keyless is the size of the read buffer, in bytes. It is less than the length of the line that begins a key. So once a
	// certificate has been read to its end, the buffer holds nothing of a key that follows.
	keyless = 16
	// lookEvery is how often Run looks: twice for each heartbeat.
	lookEvery = 5 * time.Second
)

// KubeletConfig says where to look. All fields are required unless it says otherwise.
type KubeletConfig struct {
	// Settings is kubelet's configuration file. Empty means that kubelet has none.
	Settings string
	// Certificate is the file with kubelet's serving certificate, or the directory where kubelet keeps its certificates. For a
	// directory, kubelet's configuration (Settings) says which file is read.
	Certificate string
	// Authorities is the file with the cloud's authorities.
	Authorities string
	Clock       ends.Clock // this machine's
	// Metrics takes the metrics. Default: they are not registered anywhere.
	Metrics prometheus.Registerer
}

// KubeletFound is what a KubeletFinder has found, and the hub's /status shows.
type KubeletFound struct {
	edge.KubeletServing
	// File is where the certificate is, or would be; empty if Settings can't be read.
	File string `json:"file,omitempty"`
	// NotAfter is the certificate's end; zero if there is none.
	NotAfter time.Time `json:"-"`
	// Problem says what is wrong; empty if nothing is.
	Problem string `json:"problem,omitempty"`
}

// KubeletFinder finds kubelet's certificate, while Run runs. It is safe for concurrent use. Make one with NewKubeletFinder.
type KubeletFinder struct {
	config KubeletConfig
	ways   *prometheus.GaugeVec

	mu    sync.Mutex
	found KubeletFound
}

// NewKubeletFinder returns a KubeletFinder. It registers its metrics, and does no I/O.
func NewKubeletFinder(c KubeletConfig) *KubeletFinder {
	return &KubeletFinder{config: c, ways: promauto.With(c.Metrics).NewGaugeVec(prometheus.GaugeOpts{
		Name: "yurthub_kubelet_certificate",
		Help: "1 with the way by which this node's kubelet can be known: pinned or signed; or else why it can't: " +
			"unapproved, ended, missing or unreadable; overdue, if it can, but nobody approves its next certificate.",
	}, []string{"way"})}
}

// Run looks until ctx ends, and then returns nil.
func (f *KubeletFinder) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		found := f.find()
		f.mu.Lock()
		if f.found.Way != found.Way {
			f.ways.Reset()
			f.ways.WithLabelValues(string(found.Way)).Set(1)
			klog.FromContext(ctx).Info("Looked for kubelet's serving certificate", "way", found.Way, "file", found.File,
				"problem", found.Problem)
		}
		f.found = found
		f.mu.Unlock()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Found returns the last result; its Way is empty until Run has looked.
func (f *KubeletFinder) Found() KubeletFound {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.found
}

// Serving returns what the coordinator is to be told.
func (f *KubeletFinder) Serving() edge.KubeletServing { return f.Found().KubeletServing }

func (f *KubeletFinder) find() KubeletFound {
	file, bootstrapped, err := f.where()
	if err != nil {
		return KubeletFound{KubeletServing: edge.KubeletServing{Way: wayOf(err)}, Problem: err.Error()}
	}
	cert, err := read(file)
	if errors.Is(err, fs.ErrNotExist) && bootstrapped {
		return KubeletFound{File: file, KubeletServing: edge.KubeletServing{Way: edge.KubeletUnapproved},
			Problem: "kubelet has serverTLSBootstrap and no certificate yet: nobody has approved its request"}
	}
	if err != nil {
		return KubeletFound{File: file, KubeletServing: edge.KubeletServing{Way: wayOf(err)}, Problem: err.Error()}
	}
	found := KubeletFound{File: file, NotAfter: cert.NotAfter}
	if bootstrapped && f.config.Clock.Wall().After(cert.NotAfter) {
		// kubelet serves with its own certificate even after its end, but not with one that was signed for it.
		found.Way, found.Problem = edge.KubeletEnded, "kubelet has serverTLSBootstrap and its certificate ended at "+
			cert.NotAfter.UTC().Format(time.RFC3339)+": nobody has approved its request for the next"
		return found
	}
	sum := sha256.Sum256(cert.Raw)
	found.KubeletServing = edge.KubeletServing{Way: edge.KubeletPinned, Digest: hex.EncodeToString(sum[:])}
	life, left := cert.NotAfter.Sub(cert.NotBefore), cert.NotAfter.Sub(f.config.Clock.Wall())
	switch {
	case bootstrapped && left < life/10: // kubelet asks for the next when a tenth is left, at the latest
		found.Way, found.Problem = edge.KubeletOverdue, "kubelet has serverTLSBootstrap and its certificate ends at "+
			cert.NotAfter.UTC().Format(time.RFC3339)+": nobody has approved its request for the next"
	case f.signed(cert):
		found.Way = edge.KubeletSigned
	}
	return found
}

func wayOf(err error) edge.KubeletWay {
	if errors.Is(err, fs.ErrNotExist) {
		return edge.KubeletMissing
	}
	return edge.KubeletUnreadable
}

// settings are those of kubelet that decide which certificate it serves with.
type settings struct {
	TLSCertFile        string `json:"tlsCertFile"`
	ServerTLSBootstrap bool   `json:"serverTLSBootstrap"`
}

// where returns the file with kubelet's certificate, and whether the cluster signs that certificate.
func (f *KubeletFinder) where() (file string, bootstrapped bool, err error) {
	at, err := os.Stat(f.config.Certificate)
	if err == nil && !at.IsDir() {
		return f.config.Certificate, filepath.Base(f.config.Certificate) == nameBootstrapped, nil
	}
	var s settings
	if f.config.Settings != "" {
		content, err := readAll(f.config.Settings)
		if err != nil {
			return "", false, fmt.Errorf("kubelet's settings: %w", err)
		}
		if err := yaml.Unmarshal(content, &s); err != nil {
			// Its own words may quote the content.
			return "", false, fmt.Errorf("kubelet's settings: %s is no YAML", f.config.Settings)
		}
	}
	switch {
	case s.TLSCertFile != "" && !filepath.IsAbs(s.TLSCertFile):
		return filepath.Join(filepath.Dir(f.config.Settings), s.TLSCertFile), false, nil
	case s.TLSCertFile != "":
		return s.TLSCertFile, false, nil
	case err != nil:
		return "", false, fmt.Errorf("kubelet's certificate: %w", err)
	case s.ServerTLSBootstrap:
		return filepath.Join(f.config.Certificate, nameBootstrapped), true, nil
	}
	return filepath.Join(f.config.Certificate, nameOwn), false, nil
}

// signed reports whether one of the cloud's authorities has signed a certificate, whenever it ends and whatever it is for.
func (f *KubeletFinder) signed(cert *x509.Certificate) bool {
	authorities, err := readAll(f.config.Authorities)
	if err != nil {
		return false // the hub has none yet; what it says of kubelet is no less true
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: cert.NotBefore.Add(time.Second)})
	return err == nil
}

func readAll(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxSettings+1))
	if err == nil && len(content) > maxSettings {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxSettings)
	}
	return content, err
}

func read(path string) (*x509.Certificate, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cert, err := first(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cert, nil
}

// first returns the certificate with which a file begins, which is the server's own, and reads no further.
func first(file io.Reader) (*x509.Certificate, error) {
	const begin, end = "-----BEGIN ", "-----END "
	lines := bufio.NewReaderSize(io.LimitReader(file, maxCertificate), keyless)
	var text bytes.Buffer
	for {
		line, err := lines.ReadString('\n')
		switch {
		case text.Len() == 0 && strings.HasPrefix(line, begin) && !strings.HasPrefix(line, begin+"CERTIFICATE-----"):
			return nil, errors.New("it does not begin with a certificate")
		case text.Len() > 0 || strings.HasPrefix(line, begin):
			text.WriteString(line)
		}
		if strings.HasPrefix(line, end) || err != nil {
			break
		}
	}
	block, _ := pem.Decode(text.Bytes())
	if block == nil {
		return nil, errors.New("there is no certificate in it")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("its first certificate: %w", err)
	}
	return cert, nil
}
