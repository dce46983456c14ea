// Package settings sends each pool's hubs what the PoolSettings that select the pool say. It writes into each PoolSettings'
// status how many of its nodes follow.
//
// There are two controllers, each with a queue of its own:
//
//	pools      each NodePool has a ConfigMap (edge.PoolName.SettingsConfigMap) with its settings, which only its nodes may
//	           read; a pool without settings has one as well, so that hubs have something to follow
//	statuses   a PoolSettings' status says whether its pools are told, and how many of their nodes do as it says, by what
//	           hubs write into an annotation of their Nodes
//
// The merge is pure and works on single fields, whatever their names (package precedence). PoolSettings are ordered by
// priority, then by age, then by name, and the first one that has a field sets it. Two PoolSettings of the same priority clash
// if they have different values for a field of the same pool. The statuses of both say so.
//
// The ConfigMap has a generation, which grows when what hubs are told changes. For its last few generations it also remembers
// from which generations of which PoolSettings each was made. So a node that reports generation 7 of its pool counts for each
// of these PoolSettings. No memory of this process is needed for that.
//
// It needs these rights (RBAC), and must itself hold the rights that it grants:
//
//	""                         nodes                   get list watch
//	""                         configmaps              get list watch create patch delete, in kube-system
//	rbac.authorization.k8s.io  roles rolebindings      create patch delete, in kube-system
//	apps.openyurt.io           nodepools poolsettings  get list watch
//	apps.openyurt.io           poolsettings/status     patch
//	events.k8s.io              events                  create patch
package settings
