// Package certs makes the certificates of a pool's coordinator, and decides when to renew them. It does no I/O, and its callers
// pass the time.
//
// Every decision follows from the certificates themselves. So after a crash at any point, another process comes to the same
// decision. A certificate is valid from Backdate before it is made, because the clocks of a site and the cloud may be minutes
// apart. It is renewed after two thirds of its life.
//
// An authority is rotated with overlap. Its successor is trusted for a while before it signs anything, so that by then
// everybody who verifies certificates knows it. The old authority is trusted until it expires, so that its certificates stay
// valid.
package certs
