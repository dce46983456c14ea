// Package oci makes container images of static programs, without a container engine and without a base image: an image has
// the program, who runs it, a place for temporary files, and the list of what the program is made of.
//
// Images are functions of what is in them: the same bytes on every machine, whenever they are made. There are no times and
// no owners in their layers.
//
// An image has no CA certificates, as programs of ours believe no public authority: each is told whom to trust by a file of
// the cluster's or the pool's, which is mounted. Nor has it a shell, time zones or /etc/nsswitch.conf: Go does without.
package oci
