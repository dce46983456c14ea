package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// decoder returns a decoder. A strict one refuses unknown fields, and fields that are given twice.
func decoder(strict bool) (runtime.Decoder, error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, err
	}
	var opts []serializer.CodecFactoryOptionsMutator
	if strict {
		opts = append(opts, serializer.EnableStrict)
	}
	return serializer.NewCodecFactory(scheme, opts...).UniversalDeserializer(), nil
}

// Decode reads a YurtHubConfiguration, in YAML or JSON. It refuses another kind or version, unknown fields, and fields that are
// given twice. It sets no defaults, because a flag or the pool may set a field that the file leaves out.
func Decode(content []byte) (*YurtHubConfiguration, error) { return decode(content, true) }

func decode(content []byte, strict bool) (*YurtHubConfiguration, error) {
	d, err := decoder(strict)
	if err != nil {
		return nil, err
	}
	o, kind, err := d.Decode(content, nil, nil)
	if err != nil {
		return nil, err
	}
	c, ok := o.(*YurtHubConfiguration)
	if !ok {
		return nil, fmt.Errorf("it is a %s, want a %s of %s", kind, Kind, GroupVersion)
	}
	return c, nil
}

// DecodeShared reads the settings that a pool's hubs share: a YurtHubConfiguration that sets nothing but fields of HubSettings.
// A newer program may have written it, with fields that this one does not know. DecodeShared leaves these out, and the second
// result names them.
func DecodeShared(content []byte) (s HubSettings, unknown string, err error) {
	c, err := Decode(content)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		unknown = errors.Join(strict.Errors()...).Error()
		c, err = decode(content, false)
	}
	if err != nil {
		return HubSettings{}, "", err
	}
	s = c.HubSettings
	if rest, err := Fields(c); err != nil {
		return HubSettings{}, "", err
	} else if shared, err := Fields(s); err != nil {
		return HubSettings{}, "", err
	} else if len(rest) > len(shared) {
		return HubSettings{}, "", errors.New("it has settings that only a node can have")
	}
	return s, strings.ReplaceAll(unknown, "\n", "; "), nil
}

// EncodeShared returns the settings as JSON that DecodeShared reads.
func EncodeShared(s HubSettings) ([]byte, error) {
	c := YurtHubConfiguration{HubSettings: s}
	c.SetGroupVersionKind(GroupVersion.WithKind(Kind))
	return json.Marshal(c)
}

// Fields returns the fields that are set in a HubSettings or YurtHubConfiguration, by their names in JSON.
func Fields(of any) (map[string]json.RawMessage, error) {
	content, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(content, &fields); err != nil {
		return nil, err
	}
	delete(fields, "apiVersion")
	delete(fields, "kind")
	return fields, nil
}
