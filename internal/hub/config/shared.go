package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/logs"
)

// sharedSetting is a setting that a pool can make for all of its hubs.
type sharedSetting struct {
	flag string
	// running says that it can change while a hub runs.
	running bool
	// field is where a Config has it.
	field func(*Config) any
	// said is what a pool says, of the same type as field, or nil.
	said func(*v1alpha1.HubSettings) any
}

// sharedSettings are all of them.
var sharedSettings = []sharedSetting{
	{"pool-scope-resources", true, func(c *Config) any { return &c.PoolScopeResources },
		func(s *v1alpha1.HubSettings) any { return list(s.PoolScopeResources) }},
	{"cache-agents", true, func(c *Config) any { return &c.CacheAgents },
		func(s *v1alpha1.HubSettings) any { return list(s.CacheAgents) }},
	{"remember-identities-for", true, func(c *Config) any { return &c.RememberIdentitiesFor },
		func(s *v1alpha1.HubSettings) any {
			if s.RememberIdentitiesFor == nil {
				return nil
			}
			return &s.RememberIdentitiesFor.Duration
		}},
	{"link-profile", true, func(c *Config) any { return &c.LinkProfile },
		func(s *v1alpha1.HubSettings) any {
			if s.LinkProfile == "" {
				return nil
			}
			return &s.LinkProfile
		}},
	{"relay", true, func(c *Config) any { return &c.Relay },
		func(s *v1alpha1.HubSettings) any {
			if s.Relay == "" {
				return nil
			}
			return &s.Relay
		}},
	{logs.VerbosityFlag, true, func(c *Config) any { return &c.Logs.Verbosity },
		func(s *v1alpha1.HubSettings) any {
			if s.Verbosity == nil {
				return nil
			}
			level := logsapi.VerbosityLevel(max(0, *s.Verbosity))
			return &level
		}},
	{logs.FormatFlag, false, func(c *Config) any { return &c.Logs.Format },
		func(s *v1alpha1.HubSettings) any {
			if s.LoggingFormat == "" {
				return nil
			}
			return &s.LoggingFormat
		}},
	{"own-objects", false, func(c *Config) any { return &c.OwnObjects },
		func(s *v1alpha1.HubSettings) any { return value(s.OwnObjects) }},
	{"own-secrets", false, func(c *Config) any { return &c.OwnSecrets },
		func(s *v1alpha1.HubSettings) any { return value(s.OwnSecrets) }},
	{"masterservice", false, func(c *Config) any { return &c.MasterService },
		func(s *v1alpha1.HubSettings) any { return value(s.Masterservice) }},
}

func list(l []string) any {
	if l == nil {
		return nil
	}
	return &l
}

func value[T any](p *T) any {
	if p == nil {
		return nil
	}
	return p
}

// Given returns the flags that the node sets itself, on the command line or in a file, among those that a pool may set as well.
// They are the value for Config.Own.
func Given(fs *pflag.FlagSet) (own []string) {
	for _, s := range sharedSettings {
		if fs.Changed(s.flag) {
			own = append(own, s.flag)
		}
	}
	return own
}

// under returns the settings of a node in a pool with these settings: the node's own, else the pool's, else the defaults.
func (c Config) under(said v1alpha1.HubSettings) Config {
	for _, s := range sharedSettings {
		if v := s.said(&said); v != nil && !slices.Contains(c.Own, s.flag) {
			reflect.ValueOf(s.field(&c)).Elem().Set(reflect.ValueOf(v).Elem())
		}
	}
	return c
}

// kept returns the flags for which the node's own setting overrides the pool's.
func (c Config) kept(said v1alpha1.HubSettings) (flags []string) {
	for _, s := range sharedSettings {
		v := s.said(&said)
		if v != nil && slices.Contains(c.Own, s.flag) && !reflect.DeepEqual(v, s.field(&c)) {
			flags = append(flags, s.flag)
		}
	}
	return flags
}

// needRestart returns the flags whose change from c to to takes effect only after a restart.
func (c Config) needRestart(to Config) (flags []string) {
	for _, s := range sharedSettings {
		if !s.running && !reflect.DeepEqual(s.field(&c), s.field(&to)) {
			flags = append(flags, s.flag)
		}
	}
	return flags
}

// mayBecome returns an error if a hub that runs with the node's own settings c needs a restart for other settings.
func (c Config) mayBecome(to Config) error {
	to.Own, to.DiskCacheClockOffset = c.Own, c.DiskCacheClockOffset
	var running []string
	for _, s := range sharedSettings {
		if s.running {
			running = append(running, "--"+s.flag)
			reflect.ValueOf(s.field(&to)).Elem().Set(reflect.ValueOf(s.field(&c)).Elem())
		}
	}
	if !reflect.DeepEqual(to, c) {
		return fmt.Errorf("only %s can change while yurthub runs; restart it for the other settings", strings.Join(running, ", "))
	}
	return nil
}

// usable returns an error if a node with the settings c cannot run with its pool's settings. It names the pool's setting.
func (c Config) usable(said v1alpha1.HubSettings) error {
	if err := c.Validate(); err != nil {
		return nil //nolint:nilerr // it is not the pool that is wrong
	}
	together := c.under(said)
	if err := together.Validate(); err != nil {
		return fmt.Errorf("this node cannot use them: %w", err)
	}
	return nil
}
