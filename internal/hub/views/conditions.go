package views

import "yurtcoordinator/internal/stream/edit"

// conditions are an endpoint's conditions as clients read them. Where the object omits them, ready is true, serving is the same
// as ready, and terminating is false.
type conditions struct{ ready, serving, terminating bool }

// read reads an endpoint's conditions.
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
