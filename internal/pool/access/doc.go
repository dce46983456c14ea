// Package access decides who may do what at the coordinator: who a caller is, which nodes belong to the pool, what a
// role allows, what a node may write into a Lease, and who leads.
//
// Invariants:
//   - No caller is believed about its place in the pool: a node writes only its own name into the election Lease, and only
//     this process's monotonic clock says whether a holder has lapsed, never a renewTime.
//   - A certificate never makes its holder all-powerful, whichever groups it names.
//   - Nodes of other pools are refused everything; the pool's nodes never read Secrets, ConfigMaps or ServiceAccounts here.
//   - A refusal tells the caller what to do instead.
//
// The decisions about Leases are pure functions with tables. A ValidatingAdmissionPolicy was the alternative: it costs
// its CEL environment in memory, and can't know how long a Lease has been as it is.
package access
