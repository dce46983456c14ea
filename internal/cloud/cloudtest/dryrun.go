package cloudtest

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// IsDryRun reports whether a patch with these options changes nothing.
func IsDryRun(opts []client.PatchOption) bool {
	applied := client.PatchOptions{}
	return len(applied.ApplyOptions(opts).DryRun) > 0
}

// Patch is for an interceptor before a fake client, because a fake client ignores that a patch is a dry run. It answers the dry
// run of an empty patch as an API server does, with the object as it is.
func Patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if IsDryRun(opts) {
		return c.Get(ctx, client.ObjectKeyFromObject(o), o)
	}
	return c.Patch(ctx, o, p, opts...)
}
