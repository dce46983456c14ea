package settings

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	hub "yurtcoordinator/apis/hub/v1alpha1"
)

// told is what a pool's hubs are told.
type told struct {
	// Configuration is what hub.DecodeShared reads.
	Configuration string
	// From are the PoolSettings that select the pool, by name, with their generations.
	From map[string]int64
}

// clash is a field of which another PoolSettings of the same priority says something else.
type clash struct{ Pool, Field, Other string }

func (c clash) String() string {
	return fmt.Sprintf("%s of pool %s, with %s", c.Field, c.Pool, c.Other)
}

// selects reports whether s selects a pool. The error is about its selector.
func selects(s *v1alpha1.PoolSettings, pool *v1beta2.NodePool) (bool, error) {
	if slices.Contains(s.Spec.Pools, pool.Name) {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Spec.NodePoolSelector) // nil selects nothing
	if err != nil {
		return false, fmt.Errorf("nodepoolSelector: %w", err)
	}
	return selector.Matches(labels.Set(pool.Labels)), nil
}

// precedence sorts those first that beat others.
func precedence(a, b *v1alpha1.PoolSettings) int {
	return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// merge returns what a pool's hubs are told by all PoolSettings of the cluster, and the clashes by the names of those
// PoolSettings that are in one.
func merge(pool *v1beta2.NodePool, all []v1alpha1.PoolSettings) (told, map[string][]clash, error) {
	var chosen []*v1alpha1.PoolSettings
	for i := range all {
		// A selector that cannot be read selects nothing, and the status says so.
		if ok, err := selects(&all[i], pool); ok && err == nil && all[i].DeletionTimestamp.IsZero() {
			chosen = append(chosen, &all[i])
		}
	}
	slices.SortFunc(chosen, precedence)
	t, clashes := told{From: map[string]int64{}}, map[string][]clash{}
	fields, sayer := map[string]json.RawMessage{}, map[string]*v1alpha1.PoolSettings{}
	for _, s := range chosen {
		t.From[s.Name] = s.Generation
		says, err := hub.Fields(s.Spec.Hub)
		if err != nil {
			return told{}, nil, fmt.Errorf("PoolSettings %s: %w", s.Name, err)
		}
		for _, field := range slices.Sorted(maps.Keys(says)) {
			first := sayer[field]
			if first == nil {
				fields[field], sayer[field] = says[field], s
			} else if first.Spec.Priority == s.Spec.Priority && !bytes.Equal(fields[field], says[field]) {
				clashes[s.Name] = append(clashes[s.Name], clash{pool.Name, field, first.Name})
				clashes[first.Name] = append(clashes[first.Name], clash{pool.Name, field, s.Name})
			}
		}
	}
	content, err := json.Marshal(fields)
	if err != nil {
		return told{}, nil, err
	}
	var settings hub.HubSettings
	if err := json.Unmarshal(content, &settings); err != nil {
		return told{}, nil, err
	}
	content, err = hub.EncodeShared(settings)
	t.Configuration = string(content)
	return t, clashes, err
}
