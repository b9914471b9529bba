# A module: it reads requests from stdin, line by line, and answers each with a line on stdout.
# What is for people goes to stderr (warn): stdiod keeps it in the module's log.
use v5.14;
use warnings;
use JSON::PP;

$| = 1;    # flush each line
my $json = JSON::PP->new->utf8->canonical;

my %ops = (
    greet => sub { my ($args) = @_; "hello $args->{name}" },
);

sub failure { my ($code, $message) = @_; (ok => JSON::PP::false, error => { code => $code, message => $message }) }

sub answer {
    my ($operation, $input) = @{ $_[0] }{qw(operation input)};
    return (status => 'ok') if $operation eq 'health';
    return () if $operation eq 'describe';    # all there is to say stands in module.json
    my $op = $operation eq 'invoke' ? $ops{ $input->{op} } : undef;
    return failure('unsupported_op', 'there is no such op') if !$op;
    my $result = eval { $op->($input->{args}) };
    return $@ ? failure('internal', "$@") : (ok => JSON::PP::true, result => $result);
}

while (my $line = <STDIN>) {
    my $request = $json->decode($line);
    print $json->encode({ requestId => $request->{requestId}, answer($request) }), "\n";
}
