package endpoints

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"yurtcoordinator/internal/stream/edit"
)

// conditions are an endpoint's as clients take them: of those that are missing, ready is true, serving is as ready, and
// terminating is false.
type conditions struct{ ready, serving, terminating bool }

func conditionsOf(c discoveryv1.EndpointConditions) conditions {
	is := conditions{ready: c.Ready == nil || *c.Ready}
	is.serving = is.ready
	if c.Serving != nil {
		is.serving = *c.Serving
	}
	is.terminating = c.Terminating != nil && *c.Terminating
	return is
}

// typed is as the API has them.
func (c conditions) typed() discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: &c.ready, Serving: &c.serving, Terminating: &c.terminating}
}

// read reads conditions in protobuf.
func read(raw []byte) (conditions, error) {
	is := conditions{ready: true}
	serving := false
	for f, err := range edit.Fields(raw) {
		if err != nil {
			return is, err
		}
		value := f.Raw[len(f.Raw)-1] != 0 // a bool is one byte
		switch f.Number {
		case edit.ConditionReady:
			is.ready = value
		case edit.ConditionServing:
			serving, is.serving = true, value
		case edit.ConditionTerminating:
			is.terminating = value
		}
	}
	if !serving {
		is.serving = is.ready
	}
	return is, nil
}
