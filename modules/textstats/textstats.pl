# textstats: a persistent module in Perl, with nothing but what comes with Perl.
#
#   echo '{"operation":"invoke","input":{"op":"stats","args":{"text":"Call me Ishmael."}}}' | perl textstats.pl
use v5.14;
use warnings;
use utf8;    # this file holds a typographic apostrophe
use File::Basename qw(dirname);
use JSON::PP;

# Handles carry bytes and JSON::PP does all decoding and encoding: then no text is ever decoded twice.
# $| = 1 flushes each line; without it the answers wait in a buffer and the host waits for them.
binmode $_, ':raw' for *STDIN, *STDOUT;
$| = 1;
my $json = JSON::PP->new->utf8->canonical;

# `describe` repeats the descriptor, so the two cannot come to disagree.
my %descriptor = do {
    open my $file, '<:raw', dirname(__FILE__) . '/module.json' or die "textstats: module.json: $!\n";
    local $/;
    %{ $json->decode(<$file>) };
};

sub success { +{ ok => JSON::PP::true, result => $_[0] } }

sub failure { my ($code, $message) = @_; +{ ok => JSON::PP::false, error => { code => $code, message => $message } } }

sub syllables { my $groups = () = lc($_[0]) =~ /[aeiouyàâäéèêëîïôöùûüæœ]+/g; $groups || 1 }

sub stats {
    my ($args) = @_;
    my $text = $args->{text};
    return failure('bad_request', 'text must be a string') if !defined $text || ref $text;
    my @words     = $text =~ /[\p{L}\p{M}\p{N}]+(?:['’-][\p{L}\p{M}\p{N}]+)*/g;
    my $lines     = () = $text =~ /\n|[^\n]\z/g;
    my $sentences = grep { /\w/ } split /(?<=[.!?…])["'”’)\]]*\s+/, $text;
    my $letters   = () = $text =~ /\X/g;    # \X is what a reader calls one character
    my (%seen, $ease, $syllables);
    if (@words) {
        $syllables += syllables($_) for @words;
        $ease = 0 + sprintf '%.1f', 206.835 - 1.015 * @words / $sentences - 84.6 * $syllables / @words;
    }
    my @longest = sort { length $b <=> length $a || $a cmp $b } grep { !$seen{$_}++ } @words;
    splice @longest, $args->{longest} // 5 if @longest > ($args->{longest} // 5);
    return success({
        words => scalar @words, lines => $lines, sentences => $sentences, characters => $letters,
        longest_words => \@longest, reading_ease => $ease,
    });
}

my %ops = (stats => \&stats);

sub answer {
    my ($request) = @_;
    my $operation = $request->{operation} // 'null';
    return { status => 'ok' } if $operation eq 'health';
    return { map { $_ => $descriptor{$_} } qw(name version kind capabilities inputs outputs) } if $operation eq 'describe';
    return failure('unsupported_op', "textstats has no operation $operation") if $operation ne 'invoke';

    my $op = $request->{input}{op} // 'null';
    return failure('unsupported_op', "textstats has no op $op") if !$ops{$op};
    return $ops{$op}->($request->{input}{args} // {});
}

while (my $line = <STDIN>) {    # false at EOF, which is how the host says goodbye
    my $request = eval { $json->decode($line) };
    if (ref $request ne 'HASH') {
        print STDERR 'textstats: ignored a malformed line: ', $@ || "not an object\n";
        next;
    }
    my $reply = eval { answer($request) } // failure('internal', "$@");
    $reply->{requestId} = $request->{requestId} if exists $request->{requestId};
    print $json->encode($reply), "\n";
}
