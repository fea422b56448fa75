// Package redisserver starts a redis-server for measurements.
package redisserver
