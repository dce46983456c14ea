package line

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unit is a suffix and its value.
type unit struct {
	suffix string
	worth  float64
}

// Rates are decimal and sizes binary, as in tc(8).
var (
	rateUnits = []unit{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}
	sizeUnits = []unit{{"m", 1 << 20}, {"k", 1 << 10}, {"", 1}}
)

// ParseRate reads a rate such as 1mbit, 500kbit or 2.5gbit, in bits a second.
func ParseRate(text string) (uint64, error) {
	v, ok := parse(text, rateUnits)
	if !ok || !(v >= 1 && v <= 1e12) {
		return 0, fmt.Errorf("rate %q: want a number with bit, kbit, mbit or gbit, such as 1mbit", text)
	}
	return uint64(math.Round(v)), nil
}

// ParseSize reads a size such as 256k or 1m (powers of 1024) in bytes.
func ParseSize(text string) (int, error) {
	v, ok := parse(text, sizeUnits)
	if !ok || !(v >= 1 && v <= MaxHeld) {
		return 0, fmt.Errorf("size %q: want a number of bytes, or one with k or m, such as 256k, up to %s", text,
			FormatSize(MaxHeld))
	}
	return int(math.Round(v)), nil
}

// ParseLoss reads a share in percent, such as 2% or 0.1%.
func ParseLoss(text string) (float64, error) {
	v, ok := parse(text, []unit{{"%", 1}})
	if !ok || !(v >= 0 && v <= 100) {
		return 0, fmt.Errorf("loss %q: want percent, such as 2%%", text)
	}
	return v / 100, nil
}

func parse(text string, units []unit) (float64, bool) {
	for _, u := range units {
		if number, ok := strings.CutSuffix(text, u.suffix); ok {
			v, err := strconv.ParseFloat(number, 64)
			return v * u.worth, err == nil
		}
	}
	return 0, false
}

// FormatRate is the inverse of ParseRate.
func FormatRate(rate uint64) string { return format(float64(rate), rateUnits) }

// FormatSize is the inverse of ParseSize.
func FormatSize(size int) string { return format(float64(size), sizeUnits) }

// FormatLoss is the inverse of ParseLoss.
func FormatLoss(loss float64) string { return strconv.FormatFloat(loss*100, 'g', 6, 64) + "%" }

// format uses the largest unit that gives a whole number, or the smallest unit.
func format(v float64, units []unit) string {
	for _, u := range units {
		if n := v / u.worth; n == math.Trunc(n) {
			return strconv.FormatFloat(n, 'f', -1, 64) + u.suffix
		}
	}
	return strconv.FormatFloat(v, 'f', -1, 64) + units[len(units)-1].suffix
}
