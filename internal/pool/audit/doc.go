// Package audit writes one JSON line for each request that was refused (401, 403), and for each stream into a container.
//
// Invariants:
//   - Every refusal leaves a line, or is counted in the next one: a caller in a loop is bounded by a rate.
//   - No line holds a secret: never a header, a body or a query, but for the container and command of a stream.
//   - A line is bounded, whatever a caller sends, and stays one line.
//
// Kubernetes' own audit log was the alternative: it has a policy, four stages and a backend, and logs no request that was
// refused before a caller was known.
package audit
