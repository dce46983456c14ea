package lab

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// answering is a connection whose other end has its answer ready.
type answering struct {
	asked bytes.Buffer
	io.Reader
}

func (a *answering) Write(p []byte) (int, error) { return a.asked.Write(p) }

func TestAskDNS(t *testing.T) {
	const name = "web.default.svc.cluster.local."
	record := func(body dnsmessage.ResourceBody) dnsmessage.Resource {
		return dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET}, Body: body,
		}
	}
	a := func(last byte) dnsmessage.Resource {
		return record(&dnsmessage.AResource{A: [4]byte{10, 129, 1, last}})
	}
	aaaa := record(&dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("fd00:10:128:101::2").As16()})
	answer := func(change func(*dnsmessage.Message)) []byte {
		m := dnsmessage.Message{
			Header: dnsmessage.Header{ID: 1, Response: true}, Answers: []dnsmessage.Resource{a(7), a(2)},
		}
		change(&m)
		packed, err := m.AppendPack(make([]byte, 2))
		if err != nil {
			t.Fatal(err)
		}
		binary.BigEndian.PutUint16(packed, uint16(len(packed)-2))
		return packed
	}
	good := answer(func(*dnsmessage.Message) {})
	for _, tt := range []struct {
		what    string
		answer  []byte
		refused string // empty: the two addresses
	}{
		{"two addresses", good, ""},
		{"no such name", answer(func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeNameError }), "NameError"},
		{"somebody else's", answer(func(m *dnsmessage.Message) { m.ID = 2 }), "another question"},
		{"a question", answer(func(m *dnsmessage.Message) { m.Response = false }), "another question"},
		{"cut off", answer(func(m *dnsmessage.Message) { m.Truncated = true }), "cut off"},
		{"half", good[:len(good)-3], "EOF"},
		{"nothing", nil, "EOF"},
		{"noise", []byte{0, 3, 1, 2, 3}, "unpack"},
	} {
		conn := &answering{Reader: bytes.NewReader(tt.answer)}
		got, err := askDNS(conn, name, dnsmessage.TypeA)
		if tt.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: %v, %v; want an error with %q", tt.what, got, err, tt.refused)
			}
			continue
		}
		want := []netip.Addr{netip.MustParseAddr("10.129.1.2"), netip.MustParseAddr("10.129.1.7")}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", tt.what, got, err, want)
		}
		var asked dnsmessage.Message
		if err := asked.Unpack(conn.asked.Bytes()[2:]); err != nil || asked.Questions[0].Name.String() != name {
			t.Errorf("asked %v, %v", asked, err)
		}
	}
	six := &answering{Reader: bytes.NewReader(answer(func(m *dnsmessage.Message) { m.Answers = []dnsmessage.Resource{aaaa} }))}
	got, err := askDNS(six, name, dnsmessage.TypeAAAA)
	var asked dnsmessage.Message
	if err != nil || fmt.Sprint(got) != "[fd00:10:128:101::2]" || asked.Unpack(six.asked.Bytes()[2:]) != nil ||
		asked.Questions[0].Type != dnsmessage.TypeAAAA {
		t.Errorf("of IPv6: %v, %v; asked %v", got, err, asked)
	}
	if _, err := askDNS(&answering{Reader: bytes.NewReader(good)}, strings.Repeat("x", 300), dnsmessage.TypeA); err == nil {
		t.Error("a name of 300 bytes is asked for")
	}
}
