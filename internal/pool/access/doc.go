// Package access decides who may do what at the coordinator: who a caller is, which nodes belong to the pool, what a role allows,
// what a node may write into a Lease, and who leads.
//
// Invariants:
//   - A caller's word about the pool never counts: a node writes only its own name into the election Lease. Only this process's
//     monotonic clock says whether a holder has lapsed, never a renewTime.
//   - A certificate never makes its holder all-powerful, whichever groups it names.
//   - Nodes of other pools are refused everything; the pool's nodes never read Secrets, ConfigMaps or ServiceAccounts here.
//   - Whoever has a link, and no certificate, sees the page alone, until the link ends.
//   - A refusal tells the caller what to do instead.
//
// The decisions about Leases are pure functions with tables. A ValidatingAdmissionPolicy was the alternative. It needs memory for
// its CEL environment, and can't know how long a Lease has stayed unchanged.
package access
