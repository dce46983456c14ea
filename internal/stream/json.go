package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxDepth is how deep JSON may nest; the limit of encoding/json, so of every API server.
const maxDepth = 10000

var errDepth = fmt.Errorf("malformed JSON: nested deeper than %d", maxDepth)

// lexer walks over JSON text once, without decoding what nobody asked for. It accepts the grammar of RFC 8259 and nothing
// else. The alternative, encoding/json, allocates for each token and reads each value twice; it is ten times slower.
type lexer struct {
	text []byte
	at   int
}

func (l *lexer) bad(wanted string) error {
	if l.at >= len(l.text) {
		return fmt.Errorf("malformed JSON: it ends where %s should be", wanted)
	}
	return fmt.Errorf("malformed JSON: %q at byte %d, want %s", l.text[l.at], l.at, wanted)
}

// peek skips white space and returns the next byte, 0 at the end.
func (l *lexer) peek() byte {
	for l.at < len(l.text) {
		switch c := l.text[l.at]; c {
		case ' ', '\t', '\n', '\r':
			l.at++
		default:
			return c
		}
	}
	return 0
}

// take skips white space and one byte, which must be c.
func (l *lexer) take(c byte) error {
	if l.peek() != c {
		return l.bad(fmt.Sprintf("%q", c))
	}
	l.at++
	return nil
}

// quoted skips a string and returns what is between the quotes, and whether that has escapes.
func (l *lexer) quoted() (content []byte, escaped bool, err error) {
	if l.peek() != '"' {
		return nil, false, l.bad("a string")
	}
	l.at++
	begin := l.at
	for {
		at, text := l.at, l.text // of what is most of a text, as little as can be
		for at < len(text) && text[at] != '"' && text[at] != '\\' && text[at] >= ' ' {
			at++
		}
		if l.at = at; at == len(text) {
			return nil, false, l.bad("the end of a string")
		}
		switch text[at] {
		case '"':
			l.at++
			if escaped && !json.Valid(text[begin-1:l.at]) {
				return nil, false, fmt.Errorf("malformed JSON: the string at byte %d", begin-1)
			}
			return text[begin:at:at], escaped, nil
		case '\\':
			escaped = true
			l.at = min(at+2, len(text))
		default:
			return nil, false, l.bad("a string without control characters")
		}
	}
}

// unquoted reads a string; a view of the text unless it has escapes. It is never nil.
func (l *lexer) unquoted() ([]byte, error) {
	l.peek()
	begin := l.at
	content, escaped, err := l.quoted()
	if err != nil {
		return nil, err
	}
	if !escaped && utf8.Valid(content) {
		return content, nil
	}
	var s string
	if err := json.Unmarshal(l.text[begin:l.at], &s); err != nil {
		return nil, fmt.Errorf("malformed JSON at byte %d: %w", begin, err)
	}
	return []byte(s), nil
}

// once reads a string into what it must be the first for; null leaves it as it is.
func (l *lexer) once(into *[]byte, name string) error {
	if *into != nil {
		return fmt.Errorf("malformed object: it has two of %s", name)
	}
	if l.peek() == 'n' {
		return l.scalar()
	}
	s, err := l.unquoted()
	*into = s
	return err
}

// scalar skips a value that is neither object nor array.
func (l *lexer) scalar() error {
	if l.peek() == '"' {
		_, _, err := l.quoted()
		return err
	}
	begin, at, text := l.at, l.at, l.text
	for at < len(text) && !ends[text[at]] {
		at++
	}
	l.at = at
	switch value := text[begin:at]; string(value) {
	case "true", "false", "null":
		return nil
	default:
		if !json.Valid(value) {
			l.at = begin
			return l.bad("a value")
		}
		return nil
	}
}

// ends are the bytes that may follow a number, true, false or null.
var ends = [256]bool{',': true, ']': true, '}': true, ' ': true, '\t': true, '\n': true, '\r': true}

// name skips the name of a member of an object and its colon.
func (l *lexer) name() error {
	if _, _, err := l.quoted(); err != nil {
		return err
	}
	return l.take(':')
}

// skip skips one value. It does not recurse: how deep a text nests must not decide how much stack is used.
func (l *lexer) skip() error {
	if c := l.peek(); c != '{' && c != '[' {
		return l.scalar()
	}
	var objects [maxDepth/8 + 1]byte // bit n: the value open at depth n is an object
	depth := 0
	for {
		switch c := l.peek(); c {
		case '{', '[':
			l.at++
			if l.peek() == c+2 { // '}' is '{'+2, ']' is '['+2
				l.at++
				break
			}
			if depth++; depth > maxDepth {
				return errDepth
			}
			if c == '[' {
				objects[depth/8] &^= 1 << (depth % 8)
				continue
			}
			objects[depth/8] |= 1 << (depth % 8)
			if err := l.name(); err != nil {
				return err
			}
			continue
		default:
			if err := l.scalar(); err != nil {
				return err
			}
		}
		// A value has ended; so may have those that it is in.
		for {
			if depth == 0 {
				return nil
			}
			object := objects[depth/8]&(1<<(depth%8)) != 0
			c := l.peek()
			if c == ',' {
				l.at++
				if object {
					if err := l.name(); err != nil {
						return err
					}
				}
				break
			}
			if object && c != '}' || !object && c != ']' {
				return l.bad("a comma or the end of an object or array")
			}
			l.at++
			depth--
		}
	}
}

// members calls f for each member of an object; f must read or skip its value.
func (l *lexer) members(f func(name []byte) error) error {
	if err := l.take('{'); err != nil {
		return err
	}
	if l.peek() == '}' {
		l.at++
		return nil
	}
	for {
		name, err := l.unquoted()
		if err != nil {
			return err
		}
		if err := l.take(':'); err != nil {
			return err
		}
		if err := f(name); err != nil {
			return err
		}
		if l.peek() != ',' {
			return l.take('}')
		}
		l.at++
	}
}

// end fails unless nothing but white space is left.
func (l *lexer) end() error {
	if l.peek(); l.at < len(l.text) {
		return l.bad("the end")
	}
	return nil
}

// head reads an object's identity, and skips the rest of the object. What would be ambiguous, since decoders differ in it,
// is an error: a member that occurs twice.
func (l *lexer) head() (h head, err error) {
	seen := false
	err = l.members(func(name []byte) error {
		switch string(name) {
		case "kind":
			return l.once(&h.kind, "kind")
		case "apiVersion":
			return l.once(&h.apiVersion, "apiVersion")
		case "metadata":
			if seen {
				return errors.New("malformed object: it has two of metadata")
			}
			seen = true
			if l.peek() == 'n' {
				return l.scalar()
			}
			return l.members(func(name []byte) error {
				switch string(name) {
				case "name":
					return l.once(&h.name, "metadata.name")
				case "namespace":
					return l.once(&h.namespace, "metadata.namespace")
				case "resourceVersion":
					return l.once(&h.version, "metadata.resourceVersion")
				default:
					return l.skip()
				}
			})
		default:
			return l.skip()
		}
	})
	return h, err
}

// jsonHead reads an object's identity.
func jsonHead(raw []byte) (head, error) {
	l := lexer{text: raw}
	h, err := l.head()
	if err != nil {
		return head{}, err
	}
	return h, l.end()
}

// jsonMetadata is the text of an object's metadata, "{}" if it has none.
func jsonMetadata(raw []byte) ([]byte, error) {
	l := lexer{text: raw}
	metadata := []byte(nil)
	err := l.members(func(name []byte) error {
		if string(name) != "metadata" {
			return l.skip()
		}
		if metadata != nil {
			return errors.New("malformed object: it has two of metadata")
		}
		l.peek()
		begin := l.at
		err := l.skip()
		metadata = raw[begin:l.at]
		return err
	})
	if err != nil {
		return nil, err
	}
	if metadata == nil {
		metadata = []byte("{}")
	}
	return metadata, l.end()
}

// jsonMap reads a map of strings that is a member of metadata; nil if it is empty.
func jsonMap(raw []byte, member string) (map[string]string, error) {
	metadata, err := jsonMetadata(raw)
	if err != nil {
		return nil, err
	}
	l := lexer{text: metadata}
	if l.peek() == 'n' {
		return nil, nil
	}
	var m map[string]string
	err = l.members(func(name []byte) error {
		if string(name) != member || l.peek() == 'n' {
			return l.skip()
		}
		if m != nil {
			return fmt.Errorf("malformed object: it has two of metadata.%s", member)
		}
		m = make(map[string]string)
		return l.members(func(name []byte) error {
			var value []byte
			key := string(name)
			err := l.once(&value, key)
			m[key] = string(value)
			return err
		})
	})
	if len(m) == 0 {
		m = nil
	}
	return m, err
}

// missingTypeMeta is what must be written after the "{" of an object for it to have its kind and apiVersion; and the rest
// of the object. Of a text that is no object it returns all as it is.
func missingTypeMeta(t Type, raw []byte) (before, rest []byte) {
	l := lexer{text: raw}
	var kind, apiVersion bool
	stop := errors.New("enough")
	err := l.members(func(name []byte) error {
		switch string(name) {
		case "kind":
			kind = true
		case "apiVersion":
			apiVersion = true
		}
		if kind && apiVersion {
			return stop // API servers write them first, so that this is the usual end
		}
		return l.skip()
	})
	if err != nil {
		return nil, raw
	}
	l.at = 0
	_ = l.take('{')
	before = append(before, '{')
	if !kind {
		before = append(append(append(before, `"kind":`...), quote(t.Kind)...), ',')
	}
	if !apiVersion {
		before = append(append(append(before, `"apiVersion":`...), quote(t.GroupVersion().String())...), ',')
	}
	if l.peek() == '}' {
		before = before[:len(before)-1]
	}
	return before, raw[l.at:]
}

// quote writes a string as JSON.
func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // does not happen: any string can be written
	}
	return b
}
