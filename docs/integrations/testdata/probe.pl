# Plays the sessions of clients_test.go with Redis.pm: JSON on standard input and output.
use strict;
use warnings;

use JSON::PP;
use Redis;

# failure is what Redis.pm says, without the place in this file.
sub failure {
    my ($error) = @_;
    $error =~ s/, at \S+ line \d+\.?\n\z//;
    $error =~ s/ at \S+ line \d+\.?\n\z//;
    return { error => $error };
}

# plain returns a reply with numbers as numbers, which Redis.pm returns as texts.
sub plain {
    my ($reply) = @_;
    return [ map { plain($_) } @$reply ] if ref $reply;
    return $reply + 0 if defined $reply && $reply =~ /\A-?\d+\z/;
    return $reply;
}

sub connected {
    my ($session) = @_;
    return Redis->new(
        server => "$session->{host}:$session->{port}",
        ($session->{user}     ? (username => $session->{user})     : ()),
        ($session->{password} ? (password => $session->{password}) : ()),
        ($session->{name}     ? (name     => $session->{name})     : ()),
        cnx_timeout  => 10,
        read_timeout => 10,
    );
}

# ask sends a command. Redis.pm returns an array in the context of a list.
sub ask {
    my ($client, $name, @arguments) = @_;
    my $reply = eval { [ $client->$name(@arguments) ] };
    return failure($@) if !$reply;
    return plain(@$reply == 1 ? $reply->[0] : $reply);
}

sub play {
    my ($session) = @_;
    my $client = eval { connected($session) };
    if (!$client) {
        my $failure = failure($@);
        return { replies => [ map { $failure } @{ $session->{commands} } ], pipeline => $failure, subscribe => $failure };
    }
    my (@replies, $reserved);
    for my $command (@{ $session->{commands} }) {
        my $reply = ask($client, map { $_ eq '@' ? $reserved : $_ } @$command);
        $reserved = $reply->[0] if ref $reply eq 'ARRAY' && $reply->[0] !~ /\A-?\d+\z/;
        push @replies, $reply;
    }
    my @piped;
    for my $command (@{ $session->{pipeline} }) {
        my ($name, @arguments) = @$command;
        $client->$name(@arguments, sub { push @piped, defined $_[1] ? { error => $_[1] } : plain($_[0]) });
    }
    $client->wait_all_responses;
    my $subscribe = eval { $client->subscribe('news', sub { }); 1 } || failure($@);
    return { replies => \@replies, pipeline => \@piped, subscribe => $subscribe };
}

my $sessions = decode_json(do { local $/; <STDIN> });
print encode_json([ map { play($_) } @$sessions ]);
