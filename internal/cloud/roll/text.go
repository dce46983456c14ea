package roll

import (
	"maps"
	"slices"
	"strings"
)

// maxText bounds what a roll says: half of what a ConfigMap can hold, and what an expression may search. It is 4000 pools and
// their YurtCoordinators by the longest names, and 25,000 by names as people give them.
const maxText = 512 << 10

// Entry is a line of a roll.
type Entry struct{ Key, Value string }

// text is what a roll says of entries: each on a line of its own, as KEY=VALUE, in order, with a newline before it and behind
// it, so that "\nKEY=" is found where KEY is, and nowhere else. Of several with a key the first by value stands for all. It
// returns how many keys are left out: those that are no names, which nothing can be called, and the last of too many.
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

// plain: it has nothing but what names and values of labels are made of.
func plain(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == ""
}
