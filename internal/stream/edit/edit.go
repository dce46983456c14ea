// Package edit reads and changes single fields of a Kubernetes Protobuf message, and decodes nothing else. All other fields stay
// byte for byte, including those that this program does not know. Decoding into API types would drop them.
//
// A message is refused if it is truncated, if a length in it is wrong, or if it has a group, which Kubernetes never writes.
package edit

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Number is that of a field in its message.
type Number = protowire.Number

// ErrGroup says that a message has a group.
var ErrGroup = errors.New("malformed message: a field is a group, which Kubernetes never writes")

// headBytes is more than the tag and length of a field take.
const headBytes = 16

// Field is one field of a message: a part of the message's own bytes.
type Field struct {
	Number Number
	// Raw is the whole field, its tag included.
	Raw []byte
	// Value is the content of a length-delimited field; nil for any other.
	Value []byte
}

// Bytes is the content of a field that must be length-delimited.
func (f Field) Bytes() ([]byte, error) {
	if f.Value == nil {
		return nil, fmt.Errorf("malformed message: field %d is not length-delimited", f.Number)
	}
	return f.Value, nil
}

// Fields yields the fields of a message in their order. An error comes last, and ends the sequence.
func Fields(message []byte) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		for rest := message; len(rest) > 0; {
			f, err := first(rest)
			if !yield(f, err) || err != nil {
				return
			}
			rest = rest[len(f.Raw):]
		}
	}
}

// first reads the field at the front of a message.
func first(message []byte) (f Field, err error) {
	number, wire, tag := protowire.ConsumeTag(message)
	if tag < 0 {
		return f, fmt.Errorf("malformed message: %w", protowire.ParseError(tag))
	}
	f.Number = number
	var n int
	switch wire {
	case protowire.BytesType:
		f.Value, n = protowire.ConsumeBytes(message[tag:])
	case protowire.VarintType, protowire.Fixed32Type, protowire.Fixed64Type:
		n = protowire.ConsumeFieldValue(number, wire, message[tag:])
	default:
		return f, ErrGroup
	}
	if n < 0 {
		return f, fmt.Errorf("malformed message: field %d: %w", number, protowire.ParseError(n))
	}
	f.Raw = message[:tag+n]
	return f, nil
}

// Values gives the content of each field of a number, which must be length-delimited.
func Values(message []byte, number Number) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for f, err := range Fields(message) {
			if err == nil && f.Number != number {
				continue
			}
			if err == nil {
				_, err = f.Bytes()
			}
			if !yield(f.Value, err) || err != nil {
				return
			}
		}
	}
}

// Inside yields the fields of an inner message, which is the value of a field of the given message. If that field occurs twice,
// Inside yields the inner fields of both, because Protobuf merges them.
func Inside(message []byte, number Number) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		for inner, err := range Values(message, number) {
			if err != nil {
				yield(Field{}, err)
				return
			}
			for f, err := range Fields(inner) {
				if !yield(f, err) || err != nil {
					return
				}
			}
		}
	}
}

// Only returns a field that must occur exactly once. Protobuf would merge two, but no API server writes that.
func Only(message []byte, number Number) (only Field, err error) {
	for f, err := range Fields(message) {
		switch {
		case err != nil:
			return Field{}, err
		case f.Number != number:
		case only.Raw != nil:
			return Field{}, fmt.Errorf("malformed message: it has two of field %d", number)
		default:
			only = f
		}
	}
	if only.Raw == nil {
		return Field{}, fmt.Errorf("malformed message: it has no field %d", number)
	}
	_, err = only.Bytes()
	return only, err
}

// Set returns a copy of a message in which a field occurs once, with a new value, at the place of its first occurrence.
func Set(message []byte, number Number, value []byte) ([]byte, error) {
	out := make([]byte, 0, len(message)+len(value)+headBytes)
	there := false
	for f, err := range Fields(message) {
		switch {
		case err != nil:
			return nil, err
		case f.Number != number:
			out = append(out, f.Raw...)
		case !there:
			there = true
			out = Append(out, number, value)
		}
	}
	if !there {
		out = Append(out, number, value)
	}
	return out, nil
}

// Change returns a copy of a message in which the function change has replaced the values of the fields with the given numbers.
// These fields must be length-delimited. If the function returns nil, the field is removed.
func Change(message []byte, change func(Field) ([]byte, error), numbers ...Number) ([]byte, error) {
	out := make([]byte, 0, len(message)+headBytes)
	for f, err := range Fields(message) {
		if err != nil {
			return nil, err
		}
		if !slices.Contains(numbers, f.Number) {
			out = append(out, f.Raw...)
			continue
		}
		value, err := f.Bytes()
		if err != nil {
			return nil, err
		}
		becomes, err := change(f)
		switch {
		case err != nil:
			return nil, fmt.Errorf("field %d: %w", f.Number, err)
		case becomes == nil:
		case bytes.Equal(becomes, value):
			out = append(out, f.Raw...)
		default:
			out = Append(out, f.Number, becomes)
		}
	}
	return out, nil
}

// Covers reports whether message has every field that part has. Fields with different numbers may be in any order; fields with
// one number are compared in their order. Two fields that differ count as covered if both are messages, and the first covers the
// second. A message that cannot be read covers only an identical one.
func Covers(message, part []byte) bool {
	if bytes.Equal(message, part) {
		return true
	}
	has := map[Number][]Field{}
	for f, err := range Fields(message) {
		if err != nil {
			return false
		}
		has[f.Number] = append(has[f.Number], f)
	}
	for f, err := range Fields(part) {
		if err != nil || len(has[f.Number]) == 0 {
			return false
		}
		mine := has[f.Number][0]
		has[f.Number] = has[f.Number][1:]
		if !bytes.Equal(mine.Raw, f.Raw) && (mine.Value == nil || f.Value == nil || !Covers(mine.Value, f.Value)) {
			return false
		}
	}
	return true
}

// AppendHead appends the tag and length of a field whose content must follow.
func AppendHead(b []byte, number Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.BytesType), uint64(size))
}

// Append appends a field.
func Append[T string | []byte](b []byte, number Number, value T) []byte {
	return append(AppendHead(b, number, len(value)), value...)
}

// Size is that of a length-delimited field.
func Size(number Number, size int) int { return protowire.SizeTag(number) + protowire.SizeBytes(size) }
