// Package way is how a hub gets to the cloud: it opens connections to an API server by its name, directly or through a proxy.
//
// Invariants:
//   - A name is looked up for each connection. While no name server answers, the addresses of before count: a site whose name
//     server is down is not cut off.
//   - Of several addresses the first that takes the connection serves, and one that is silent costs a moment only.
//   - TLS goes end to end. A proxy learns which server is meant, and nothing else.
//   - The password of a proxy stands in no error, no log and no flag.
//
// The pool's coordinator is on the LAN: it is never reached by this way.
//
// http.Transport has a Proxy of its own. It was not used, since a hub keeps account of each connection, so as to reset it with
// the link; and an HTTP/2 transport has none.
package way
