package edge

import (
	"crypto/x509"
	"fmt"
	"strconv"
	"strings"
)

// Slot is the number of one of the places that a pool has for coordinators. Only the youngest coordinator of a slot counts.
// Coordinators of different slots do not depend on each other.
type Slot int

// MaxSlots is how many slots a pool has at most.
const MaxSlots = 3

// Valid reports whether a pool can have the slot.
func (s Slot) Valid() bool { return s >= 0 && s < MaxSlots }

// ServerKey is the key at which the pool's ConfigMap tells where the slot's coordinator is.
func (s Slot) ServerKey() string { return s.key(DiscoveryServer) }

// GenerationKey is the key at which that ConfigMap has the coordinator's generation.
func (s Slot) GenerationKey() string { return s.key(DiscoveryGeneration) }

func (s Slot) key(of string) string {
	if s == 0 {
		return of
	}
	return of + "-" + strconv.Itoa(int(s))
}

// Generation identifies one coordinator of a pool. Within a slot, each new Pod of the coordinator gets a greater Number. The
// serving certificate has the Generation as the serial number of its subject. A certificate without a generation stands for the
// zero Generation.
type Generation struct {
	Slot   Slot
	Number uint64
}

// String is the generation as a certificate has it: "SLOT.NUMBER".
func (g Generation) String() string {
	return strconv.Itoa(int(g.Slot)) + "." + strconv.FormatUint(g.Number, 10)
}

// Younger reports whether a coordinator of this generation replaces one of another.
func (g Generation) Younger(than Generation) bool {
	return g.Slot == than.Slot && g.Number > than.Number
}

// ParseGeneration reads exactly what String writes, and "", which is the zero Generation.
func ParseGeneration(text string) (Generation, error) {
	if text == "" {
		return Generation{}, nil
	}
	slot, number, _ := strings.Cut(text, ".")
	s, slotErr := strconv.Atoi(slot)
	n, err := strconv.ParseUint(number, 10, 64)
	if g := (Generation{Slot(s), n}); slotErr == nil && err == nil && g.Slot.Valid() && g.String() == text {
		return g, nil
	}
	return Generation{}, fmt.Errorf("%.40q is not a generation, SLOT.NUMBER with a slot below %d", text, MaxSlots)
}

// GenerationIn returns the generation in a coordinator's certificate.
func GenerationIn(certificate *x509.Certificate) (Generation, error) {
	g, err := ParseGeneration(certificate.Subject.SerialNumber)
	if err != nil {
		return Generation{}, fmt.Errorf("serial number in the subject of a certificate: %w", err)
	}
	return g, nil
}

// MarshalText implements encoding.TextMarshaler.
func (g Generation) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *Generation) UnmarshalText(text []byte) (err error) {
	*g, err = ParseGeneration(string(text))
	return err
}
