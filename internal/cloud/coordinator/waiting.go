package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"yurtcoordinator/apis/apps/v1alpha1"
)

// ReasonKindNotServed is a reason of the condition Pending. The controller does not run, because the API server does not serve
// a kind that the controller needs.
const ReasonKindNotServed = "KindNotServed"

// SayWaiting says on all YurtCoordinators that their controller waits for these kinds. What it has found out before stays.
func (r *Reconciler) SayWaiting(ctx context.Context, missing []string) error {
	var all v1alpha1.YurtCoordinatorList
	if err := r.cfg.Reader.List(ctx, &all); err != nil {
		return fmt.Errorf("list YurtCoordinators: %w", err)
	}
	var failed []error
	for i := range all.Items {
		c := &all.Items[i]
		failed = append(failed, r.say(ctx, c, waitingStatus(c.Status, missing)))
	}
	return errors.Join(failed...)
}

func waitingStatus(was v1alpha1.YurtCoordinatorStatus, missing []string) wantedStatus {
	asItWas := func(kind v1alpha1.YurtCoordinatorConditionType, otherwise string) finding {
		i := slices.IndexFunc(was.Conditions, func(c v1alpha1.YurtCoordinatorCondition) bool { return c.Type == kind })
		if i < 0 {
			return finding{Reason: otherwise, Message: "See the condition Pending."}
		}
		c := was.Conditions[i]
		return finding{OK: c.Status == v1alpha1.ConditionTrue, Reason: c.Reason, Message: c.Message}
	}
	why := fmt.Sprintf("The API server does not serve %s, so the controller of YurtCoordinators does not run: "+
		"install the CRD, in this version.", strings.Join(missing, ", "))
	var standbys finding // which is only there where standbys are asked for
	if f := asItWas(v1alpha1.YurtCoordinatorStandbysReady, ""); f.Reason != "" {
		standbys = f
	}
	return wantedStatus{
		standbys: standbys, coordinators: was.Coordinators,
		pending: finding{Reason: ReasonKindNotServed, Message: why},
		stalled: finding{OK: true, Reason: ReasonKindNotServed, Message: why}, from: was.Settings,
		certs: asItWas(v1alpha1.YurtCoordinatorCertsReady, ReasonNotScheduled),
		ready: asItWas(v1alpha1.YurtCoordinatorReady, ReasonPending),
		node:  was.NodeName, delegated: was.DelegatedNodes, outside: was.OutsidePoolNodes,
	}
}
