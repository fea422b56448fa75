// Package fleettest lets fleets of nodes with package tiered run in virtual time.
package fleettest
