// Package audit writes one JSON line for each refused request (401, 403), and for each stream into a container.
//
// Invariants:
//   - Every refusal writes a line, or is counted in the next one: a rate bounds a caller in a loop.
//   - No line holds a secret: no header, no body, and of a query only the container and command of a stream.
//   - A line is bounded, whatever a caller sends, and stays one line.
//
// Kubernetes' own audit log was the alternative: it has a policy, four stages and a backend, and does not log a request
// that was refused before its caller was known.
package audit
