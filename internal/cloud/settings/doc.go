// Package settings sends each pool's hubs what the PoolSettings that select the pool say. It writes into each PoolSettings'
// status how many of its nodes follow.
//
// There are two controllers, each with a queue of its own:
//
//	pools      each NodePool has a ConfigMap (edge.PoolName.SettingsConfigMap) with its settings, which only its nodes may
//	           read; a pool without settings has one as well, so that hubs have something to follow
//	statuses   a PoolSettings' status says whether its pools are told, and how many of their nodes do as it says. Hubs report
//	           that in an annotation of their Nodes
//
// The merge is pure and works on single fields, whatever their names (package precedence). PoolSettings are ordered by priority,
// then by age, then by name, and the first one that has a field sets it. Another one of the same priority clashes with the first
// if it has a different value for the field. The statuses of both say so.
//
// The ConfigMap has a generation, which grows when what hubs are told changes. The ConfigMap also says, for its last few
// generations, from which PoolSettings each was made, with their metadata.generation. When a node reports a generation of its
// pool, it counts as a node of all PoolSettings from which that generation was made. No memory of this process is needed for
// that.
//
// It needs these rights (RBAC), and must itself hold the rights that it grants:
//
//	""                         nodes                   get list watch
//	""                         configmaps              get list watch create patch delete, in kube-system
//	rbac.authorization.k8s.io  roles rolebindings      create patch delete, in kube-system
//	apps.openyurt.io           nodepools poolsettings  get list watch
//	apps.openyurt.io           yurtcoordinators        get list watch, if Config.Coordinators is set
//	apps.openyurt.io           poolsettings/status     patch
//	events.k8s.io              events                  create patch
package settings
