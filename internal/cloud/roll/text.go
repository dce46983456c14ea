package roll

import (
	"maps"
	"slices"
	"strings"
)

// maxText bounds a roll's text, in bytes. It is half of what a ConfigMap can hold, and an expression may search a text of that
// size. It holds 1600 entries with the longest names (63 and 253 characters), or 23,000 with names of ten characters.
const maxText = 512 << 10

// Entry is a line of a roll.
type Entry struct{ Key, Value string }

// text returns the roll's text for entries: one line KEY=VALUE for each key, sorted. A newline is before the first line and after
// the last, so that "\nKEY=" matches exactly KEY. Of several entries with the same key, text keeps the least value. out counts
// the keys that are left out: those that can't be the name of an object, and the last ones if all lines would take more than the
// given bytes.
func text(entries []Entry, most int) (said string, out int) {
	byKey := make(map[string]string, len(entries))
	wrong := make(map[string]bool)
	for _, e := range entries {
		switch was, there := byKey[e.Key]; {
		case e.Key == "" || !plain(e.Key) || !plain(e.Value):
			wrong[e.Key] = true
		case !there || e.Value < was:
			byKey[e.Key] = e.Value
		}
	}
	for key := range byKey {
		delete(wrong, key)
	}
	var b strings.Builder
	keys, in := slices.Sorted(maps.Keys(byKey)), 0
	for _, key := range keys {
		line := key + "=" + byKey[key] + "\n"
		if in == 0 {
			line = "\n" + line
		}
		if b.Len()+len(line) > most {
			break
		}
		b.WriteString(line)
		in++
	}
	return b.String(), len(wrong) + len(keys) - in
}

// plain reports whether s has only the characters of label names and values.
func plain(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == ""
}
