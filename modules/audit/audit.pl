# audit: a logging hook. The host tells it every event (op on_event); it says thank you at once, and
# only then counts it and writes it down: on stderr, so `stdiod logs audit` shows it.
#
#   echo '{"operation":"invoke","input":{"op":"on_event","args":{"event":"session:start"}}}' | perl audit.pl
use v5.14;
use warnings;
use File::Basename qw(dirname);
use JSON::PP;

# Handles carry bytes and JSON::PP does all decoding and encoding: then no text is ever decoded twice.
# $| = 1 flushes each line; without it the answers wait in a buffer and the host waits for them.
binmode $_, ':raw' for *STDIN, *STDOUT;
$| = 1;
my $json = JSON::PP->new->utf8->canonical;

# `describe` repeats the descriptor, so the two cannot come to disagree.
my %descriptor = do {
    open my $file, '<:raw', dirname(__FILE__) . '/module.json' or die "audit: module.json: $!\n";
    local $/;
    %{ $json->decode(<$file>) };
};

my ($total, $errors, %events) = (0, 0);

# The args of on_event: {"event": its name, "data": the Amplifier Event v1}.
sub note {
    my ($args) = @_;
    my $event  = ref $args->{data} eq 'HASH' ? $args->{data} : {};
    my $name   = $args->{event} // '(unnamed)';
    my $status = $event->{status} // '';
    $total++;
    $errors++ if $status eq 'error';
    $events{$name}++;
    my @words = grep { defined && $_ ne '' } ($name, $event->{module}, $event->{session_id}, $status, $event->{error}{code});
    print STDERR join(' ', @words), "\n";
}

sub failure { my ($code, $message) = @_; +{ ok => JSON::PP::false, error => { code => $code, message => $message } } }

sub success { +{ ok => JSON::PP::true, result => $_[0] } }

# Return the answer, and what is left to do once it has been sent.
sub answer {
    my ($request) = @_;
    my $operation = $request->{operation} // 'null';
    return { status => 'ok' } if $operation eq 'health';
    return { map { $_ => $descriptor{$_} } qw(name version kind capabilities inputs outputs) } if $operation eq 'describe';
    return failure('unsupported_op', "audit has no operation $operation") if $operation ne 'invoke';

    my ($op, $args) = ($request->{input}{op} // 'null', $request->{input}{args} // {});
    return success({ total => $total, errors => $errors, events => \%events }) if $op eq 'report';
    return failure('unsupported_op', "audit has no op $op") if $op ne 'on_event';
    return failure('bad_request', 'an event must be an object') if ref $args ne 'HASH';
    return (success({}), sub { note($args) });
}

while (my $line = <STDIN>) {    # false at EOF, which is how the host says goodbye
    my $request = eval { $json->decode($line) };
    if (ref $request ne 'HASH') {
        print STDERR 'audit: ignored a malformed line: ', $@ || "not an object\n";
        next;
    }
    my ($reply, $afterwards) = eval { answer($request) };
    $reply //= failure('internal', "$@");
    $reply->{requestId} = $request->{requestId} if exists $request->{requestId};
    print $json->encode($reply), "\n";
    $afterwards->() if $afterwards;
}
