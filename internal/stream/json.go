package stream

import (
	"bytes"
	"encoding/json"
	"fmt"

	kjson "sigs.k8s.io/json"
)

// readJSON reads the members of a JSON object for which into has fields. Names are case-sensitive. It fails if one of these
// members occurs twice, because decoders differ in which one they take. All of raw must be JSON.
func readJSON(raw []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(raw, into, kjson.DisallowDuplicateFields)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return fmt.Errorf("malformed JSON: %w", err)
	}
	return nil
}

// jsonHead reads an object's identity.
func jsonHead(raw []byte) (head, error) {
	var o struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   struct {
			Name            string `json:"name"`
			Namespace       string `json:"namespace"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err := readJSON(raw, &o)
	return head{
		namespace: []byte(o.Metadata.Namespace), name: []byte(o.Metadata.Name), version: []byte(o.Metadata.ResourceVersion),
		kind: o.Kind, apiVersion: o.APIVersion,
	}, err
}

// missingTypeMeta splits a JSON object in two, to be written one after the other. The result before is the "{", with a kind and
// an apiVersion if the object lacks them. The result rest is all else. If raw is no JSON object, before is nil and rest is raw.
func missingTypeMeta(t Type, raw []byte) (before, rest []byte) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if delimiter(d, '{') != nil {
		return nil, raw
	}
	begin := d.InputOffset()
	var value json.RawMessage
	var kind, apiVersion, some bool
	for d.More() && (!kind || !apiVersion) { // API servers write them first
		member, err := d.Token()
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return nil, raw
		}
		kind, apiVersion, some = kind || member == "kind", apiVersion || member == "apiVersion", true
	}
	before = append(before, '{')
	if !kind {
		before = append(append(append(before, `"kind":`...), quote(t.Kind)...), ',')
	}
	if !apiVersion {
		before = append(append(append(before, `"apiVersion":`...), quote(t.GroupVersion().String())...), ',')
	}
	if !some {
		before = bytes.TrimSuffix(before, []byte(","))
	}
	return before, raw[begin:]
}

// quote writes a string as JSON.
func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // does not happen: any string can be written
	}
	return b
}
