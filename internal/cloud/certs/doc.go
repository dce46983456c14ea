// Package certs makes the certificates of a pool's coordinator, and says when to make them anew. It does no I/O, and knows
// the time only as it is told.
//
// All that is decided is decided from what the certificates themselves say, so a decision can be taken again after a crash
// at any point, by another process, and comes out the same. A certificate becomes valid Backdate before it is made: the
// clocks of a site and the cloud's may be minutes apart. It is renewed when two thirds of its life are over.
//
// An authority is rotated with overlap. Its successor is trusted for a while before it signs anything, so that whoever
// verifies has heard of it; the old one is trusted until it expires, so that what it has signed stays good.
package certs
