// Package settings tells each pool's hubs what the PoolSettings that select the pool say, and says in their status what became of
// it.
//
// Two controllers, each with a queue of its own:
//
//	pools      a NodePool has a ConfigMap (edge.PoolName.SettingsConfigMap) with its settings, which its
//	           nodes, and no others, may read; also one with no settings, so that hubs have something to follow
//	statuses   a PoolSettings' status says whether its pools are told, and how many of their nodes do as it says, by what
//	           hubs write into an annotation of their Nodes
//
// The merge is pure and works on single fields, of whichever name: PoolSettings are taken in the order of their priorities,
// then of their ages, then of their names, and the first one that has a field says it. Two of the same priority that say
// different things about a field of the same pool are in conflict, and both say so.
//
// The ConfigMap has a generation, which grows when what hubs are told changes, and remembers of which generations of which
// PoolSettings the last few were made: so that a node which says that it runs with generation 7 of its pool is counted for
// each of these. No memory of this process is needed for that.
//
// It needs these rights (RBAC), and to hold those that it gives:
//
//	""                         nodes                   get list watch
//	""                         configmaps              get list watch create patch delete, in kube-system
//	rbac.authorization.k8s.io  roles rolebindings      create patch delete, in kube-system
//	apps.openyurt.io           nodepools poolsettings  get list watch
//	apps.openyurt.io           poolsettings/status     patch
//	events.k8s.io              events                  create patch
package settings
