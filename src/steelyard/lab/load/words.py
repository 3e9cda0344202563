"""Words that synthetic prompts are made of.

Frequent English words, which nearly every vocabulary holds as one token when a space goes before
them: so a prompt of n words is close to n tokens on any server, even one whose tokenizer is not at
hand. `prompts` corrects the rest by what the server itself counts.
"""

__all__ = ["WORDS"]

_TEXT = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program work number night point home
water room mother area money story fact month lot right study book eye job word issue side kind
head house service friend father power hour game line end member law car city name team minute
idea kid body back parent face others level office door health person art war history party
result change morning reason girl guy moment air teacher force foot boy age policy process music
market sense nation plan college death effect use class control care field role effort rate
heart drug show leader light voice wife police mind price report son view town road arm value
action season society tax player record paper space ground form event matter center couple site
project star table need court oil cost figure street image phone data picture piece land product
doctor wall worker news test movie north love support step baby type film tree source hair
window culture chance brother energy period course summer plant term letter choice rule daughter
south husband floor campaign material call economy hospital church risk fire future bank
security bed blood style network language animal river garden stone metal glass wood sky sun
moon rain snow wind storm sea island mountain forest valley desert lake beach bridge castle
tower palace temple village farm horse dog cat bird fish lion bear wolf sheep cow apple bread
milk salt sugar coffee tea wine beer meat rice egg fruit be have do say get make go know take
see come think look want give find tell ask seem feel try leave put mean keep let begin help
talk turn start might run move like live believe hold bring happen must write provide sit stand
lose pay meet include continue set learn lead watch follow stop create speak read allow add
spend grow open walk win offer remember consider appear buy wait serve die send expect build
stay fall cut reach kill remain suggest raise pass sell require decide pull break pick wear hang
drive throw catch draw good new first last long great little own other old big high small large
next early young few public bad same able best better sure free true whole clear real easy
strong special hard recent possible low late general full local white black red blue green short
single common poor natural similar hot dead central happy serious ready simple left physical
dark various entire close legal cold final main nice huge popular cultural deep wide fast slow
quick soft warm cool dry wet clean fresh sharp flat round thick thin heavy empty quiet loud safe
rich wise brave calm gentle proud silent bright not also very often always never again still
already perhaps almost later together ever quite really probably soon away once here there now
then just even well only down out up over through after before under between against during
without within along across behind beyond toward near among around
"""

WORDS: tuple[str, ...] = tuple(_TEXT.split())
"""512 different words: nine bits each."""
