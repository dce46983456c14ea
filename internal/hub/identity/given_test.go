package identity

import "testing"

func TestGiven(t *testing.T) {
	g := Given{"ca", "cert", "key"}
	if ca, cert, key := g.Files(); ca != "ca" || cert != "cert" || key != "key" {
		t.Errorf("%s, %s, %s", ca, cert, key)
	}
	if err := g.Ensure(t.Context()); err != nil {
		t.Error(err)
	}
	if pair, err := g.Serving(nil); pair != nil || err == nil {
		t.Errorf("it serves with %v", pair)
	}
	if s := g.Report(); s != nil {
		t.Errorf("it says %+v", s)
	}
}
