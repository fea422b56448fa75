#!/usr/bin/perl
# Asks weir before each of six jobs, through Redis.pm (Debian: libredis-perl).
#
#     weir serve --config weir.yaml
#     perl redis-perl.pl
use strict;
use warnings;

use Redis;
use Time::HiRes qw(sleep);

$| = 1;

my $max_failures = 5;
my $backoff      = 0.05;    # seconds, after the first failure; it doubles with each

my $weir;

# check asks once: allowed, limit, remaining, retry_ms, reset_ms. A connection that failed
# is replaced, and a check not sent again, which would count again.
sub check {
    # If weir has clients: username => 'checkout', password => the client's token.
    $weir ||= Redis->new(
        server       => $ENV{WEIR_ADDR} || '127.0.0.1:6380',
        cnx_timeout  => 1,
        read_timeout => 1,
    );
    my $command  = 'WEIR.CHECK';    # Redis.pm sends whatever method is called
    my @decision = eval { $weir->$command('api', 'alice') };
    return @decision if @decision;
    my $error = $@;
    undef $weir;
    die $error;
}

# admit returns once the job may begin, and how many more may at once.
sub admit {
    my ($job) = @_;
    my $failures = 0;
    while (1) {
        my ($allowed, undef, $remaining, $retry_ms) = eval { check() };
        if (!defined $allowed) {
            die "job $job: $@" if $failures == $max_failures;
            print "job $job: no decision, backing off\n";
            my $pause = $backoff * 2**$failures++;
            sleep($pause + rand $pause);    # not all at the same moment
            next;
        }
        return $remaining if $allowed;
        die "job $job: refused, and waiting cannot help\n" if $retry_ms < 0;
        print "job $job: refused, waiting $retry_ms ms\n";
        sleep($retry_ms / 1000);
    }
}

for my $job (1 .. 6) {
    my $left = admit($job);
    print "job $job: done, $left left\n";    # here goes the work
}
