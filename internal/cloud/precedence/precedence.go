// Package precedence decides which of several PoolSettings sets each field for a pool.
//
// It works on single fields, whatever their names. PoolSettings are ordered by priority, then by age, then by name. The first one
// that has a field sets it. Another one of the same priority clashes with the first if it has a different value for the field.
package precedence

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
)

// Fields are what somebody says, by the names in JSON.
type Fields = map[string]json.RawMessage

// Clash is a field of which another PoolSettings of the same priority says something else.
type Clash struct{ Field, Other string }

// Selects reports whether s selects a pool. The error is about its selector.
func Selects(s *v1alpha1.PoolSettings, pool *v1beta2.NodePool) (bool, error) {
	if slices.Contains(s.Spec.Pools, pool.Name) {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Spec.NodePoolSelector) // nil selects nothing
	if err != nil {
		return false, fmt.Errorf("nodepoolSelector: %w", err)
	}
	return selector.Matches(labels.Set(pool.Labels)), nil
}

// Of returns the PoolSettings that select a pool, in their order. They point into the given slice, and must not be changed. A
// PoolSettings that is being deleted selects nothing, and neither does one whose selector can't be read.
func Of(pool *v1beta2.NodePool, all []v1alpha1.PoolSettings) []*v1alpha1.PoolSettings {
	var chosen []*v1alpha1.PoolSettings
	for i := range all {
		if ok, err := Selects(&all[i], pool); ok && err == nil && all[i].DeletionTimestamp.IsZero() {
			chosen = append(chosen, &all[i])
		}
	}
	slices.SortFunc(chosen, func(a, b *v1alpha1.PoolSettings) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return chosen
}

// Merge returns the fields that the chosen PoolSettings set. chosen is in the order of Of; says is the function that returns the
// fields of one PoolSettings. Merge also returns the clashes, by the name of each PoolSettings that is in one.
func Merge(
	chosen []*v1alpha1.PoolSettings, says func(*v1alpha1.PoolSettings) (Fields, error),
) (Fields, map[string][]Clash, error) {
	fields, clashes, sayer := Fields{}, map[string][]Clash{}, map[string]*v1alpha1.PoolSettings{}
	for _, s := range chosen {
		said, err := says(s)
		if err != nil {
			return nil, nil, fmt.Errorf("PoolSettings %s: %w", s.Name, err)
		}
		for _, field := range slices.Sorted(maps.Keys(said)) {
			first := sayer[field]
			if first == nil {
				fields[field], sayer[field] = said[field], s
			} else if first.Spec.Priority == s.Spec.Priority && !bytes.Equal(fields[field], said[field]) {
				clashes[s.Name] = append(clashes[s.Name], Clash{field, first.Name})
				clashes[first.Name] = append(clashes[first.Name], Clash{field, s.Name})
			}
		}
	}
	return fields, clashes, nil
}

// Coordinator returns what the chosen PoolSettings say of a pool's coordinator, and the clashes; see Merge. A field that none of
// them sets is as in base.
func Coordinator(
	base v1alpha1.CoordinatorSettings, chosen []*v1alpha1.PoolSettings,
) (v1alpha1.CoordinatorSettings, map[string][]Clash, error) {
	fields, clashes, err := Merge(chosen, func(s *v1alpha1.PoolSettings) (Fields, error) {
		return OfCoordinator(s.Spec.Coordinator)
	})
	if err != nil || len(fields) == 0 {
		return base, clashes, err
	}
	all, err := OfCoordinator(base)
	if err != nil {
		return base, clashes, err
	}
	maps.Copy(all, fields)
	content, err := json.Marshal(all)
	if err != nil {
		return base, clashes, err
	}
	var merged v1alpha1.CoordinatorSettings
	err = json.Unmarshal(content, &merged)
	return merged, clashes, err
}

// Upgrade returns what the chosen PoolSettings say of a pool's upgrades, and the clashes; see Merge.
func Upgrade(chosen []*v1alpha1.PoolSettings) (u v1alpha1.UpgradeSettings, clashes map[string][]Clash, err error) {
	merged, clashes, err := Merge(chosen, func(s *v1alpha1.PoolSettings) (Fields, error) { return fieldsOf(s.Spec.Upgrade) })
	if err != nil {
		return u, nil, err
	}
	content, err := json.Marshal(merged)
	if err != nil {
		return u, nil, err
	}
	err = json.Unmarshal(content, &u)
	return u, clashes, err
}

// OfCoordinator returns the fields that are set.
func OfCoordinator(c v1alpha1.CoordinatorSettings) (Fields, error) { return fieldsOf(c) }

func fieldsOf(c any) (Fields, error) {
	content, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	fields := Fields{}
	err = json.Unmarshal(content, &fields)
	return fields, err
}
