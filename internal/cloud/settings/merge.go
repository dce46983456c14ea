package settings

import (
	"encoding/json"
	"fmt"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	hub "yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/cloud/precedence"
)

// told is what a pool's hubs are told.
type told struct {
	// Configuration is what v1alpha1.DecodeShared reads.
	Configuration string
	// From are the PoolSettings that select the pool, by name, with their generations.
	From map[string]int64
}

// clash is a field of which another PoolSettings of the same priority says something else.
type clash struct{ Pool, Field, Other string }

func (c clash) String() string {
	return fmt.Sprintf("%s of pool %s, with %s", c.Field, c.Pool, c.Other)
}

// merge returns what all PoolSettings of the cluster tell a pool's hubs. It also returns the clashes, by the names of the
// PoolSettings that clash. They include clashes about the pool's coordinator and its upgrades.
func merge(pool *v1beta2.NodePool, all []v1alpha1.PoolSettings) (told, map[string][]clash, error) {
	chosen := precedence.Of(pool, all)
	t, clashes := told{From: map[string]int64{}}, map[string][]clash{}
	for _, s := range chosen {
		t.From[s.Name] = s.Generation
	}
	note := func(prefix string, found map[string][]precedence.Clash) {
		for name, those := range found {
			for _, c := range those {
				clashes[name] = append(clashes[name], clash{pool.Name, prefix + c.Field, c.Other})
			}
		}
	}
	fields, found, err := precedence.Merge(chosen, func(s *v1alpha1.PoolSettings) (precedence.Fields, error) {
		return hub.Fields(s.Spec.Hub)
	})
	if err != nil {
		return told{}, nil, err
	}
	note("", found)
	if _, found, err = precedence.Coordinator(v1alpha1.CoordinatorSettings{}, chosen); err != nil {
		return told{}, nil, err
	}
	note("coordinator.", found)
	if _, found, err = precedence.Upgrade(chosen); err != nil {
		return told{}, nil, err
	}
	note("upgrade.", found)
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
