(* Exchange adjacency for blocks of features, flat, joint and nested: one person becomes
   anybody who is possible, and others only hand over the published values that the person takes. *)
From mathcomp Require Import all_ssreflect fingroup perm.
Require Import Datasets Reach Features.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Exchange.
Variables (n : nat) (F B V N : finType) (block : F -> B) (node : F -> V -> N).
Local Notation record := (record F V).
Local Notation tuple_in := (@tuple_in F B V N block node).
Local Notation dataset := (dataset record n).
Local Notation same_totals := (@same_totals record B _ tuple_in n).
Local Notation inhabited := (@inhabited record B _ tuple_in n).
Local Notation active := (@active record B _ tuple_in n).
Local Notation differ := (@differ record B _ tuple_in).
Local Notation moves := (@moves F V N node).
Local Notation carriers := (@carriers record B _ tuple_in n).
Implicit Types (X Y Z : dataset) (p i j : 'I_n) (x y : record) (b : B) (f : F).
Implicit Type c : {ffun B -> 'I_n}.

(* The person becomes y. For every block in which the published tuples of x and y differ, the carrier
   takes the person's old LEAF on exactly those features of the block whose published nodes differ
   between x and y. Nothing else of anybody changes. *)
Definition exchange X p y c : dataset :=
  [ffun i => if i == p then y else
     [ffun f => if moves (X p) y f && (c (block f) == i) then X p f else X i f]].

(* Y arises from X by one exchange. *)
Definition arises X Y := [exists p, exists y, exists c,
  [&& inhabited X y, carriers X p y c & Y == exchange X p y c]].

(* X ~ Y: Y arises from X, or X from Y. *)
Definition adjacent X Y := arises X Y || arises Y X.

Lemma arisesP X Y :
  reflect (exists p y c, [/\ inhabited X y, carriers X p y c & Y = exchange X p y c]) (arises X Y).
Proof.
apply: (iffP existsP).
  by move=> [p /existsP[y /existsP[c /and3P[h1 h2 /eqP h3]]]]; exists p, y, c.
move=> [p [y [c [h1 h2 h3]]]]; exists p; apply/existsP; exists y; apply/existsP; exists c.
by rewrite h1 h2 h3 eqxx.
Qed.

(* Carriers have y's whole published tuple of the block. *)
Lemma carrier_node X p y c b f :
  carriers X p y c -> b \in differ (X p) y -> block f = b -> node f (X (c b) f) = node f (y f).
Proof. by move=> /carriersP h /h /eqP/tuple_inP; apply. Qed.

(* Where there are carriers, y is inhabited: the first condition of [arises] follows from the second
   and is written for the reader. *)
Lemma carriers_inhabited X p y c : carriers X p y c -> inhabited X y.
Proof.
move=> /carriersP h; apply/inhabitedP=> b.
case d : (b \in differ (X p) y); first by exists (c b); apply: h.
by exists p; move: d; rewrite inE => /negbFE/eqP.
Qed.

Lemma exchange_person X p y c : exchange X p y c p = y.
Proof. by rewrite ffunE eqxx. Qed.

Lemma exchange_other X p y c i f : i != p ->
  exchange X p y c i f = if moves (X p) y f && (c (block f) == i) then X p f else X i f.
Proof. by move=> ip; rewrite ffunE (negbTE ip) ffunE. Qed.

(* As far as published tuples go, the person swaps with the carrier in every block that differs. *)
Lemma exchange_tuple X p y c i b : carriers X p y c ->
  tuple_in (exchange X p y c i) b =
  tuple_in (X ((if b \in differ (X p) y then tperm p (c b) else 1%g) i)) b.
Proof.
move=> hc; case: (eqVneq i p) => [->|ip].
  rewrite exchange_person; case: ifP => d; first by rewrite tpermL (carriersP _ _ _ _ _ hc).
  by rewrite perm1; move: d; rewrite inE => /negbFE/eqP.
apply/eqP/tuple_inP=> f e; rewrite exchange_other // e.
case d : (b \in differ (X p) y); last first.
  have -> : moves (X p) y f = false by apply: contraFF d => /moves_differ; rewrite -e; apply.
  by rewrite perm1.
case: (eqVneq (c b) i) => [ci|ci]; last by rewrite andbF tpermD // eq_sym.
rewrite -ci tpermR andbT; case: ifP => // /negbFE/eqP ->.
exact: carrier_node hc d e.
Qed.

Lemma exchange_totals X p y c : carriers X p y c -> same_totals X (exchange X p y c).
Proof.
move=> hc; apply: (@rearranged_totals _ _ _ _ _ _ _
  (fun b => if b \in differ (X p) y then tperm p (c b) else 1%g)) => i b.
exact: exchange_tuple.
Qed.

Lemma exchange_changed X p y c :
  changed X (exchange X p y c) \subset p |: [set c b | b in differ (X p) y].
Proof.
apply/subsetP=> i; rewrite in_setU1 [i \in changed _ _]inE; case: (eqVneq i p) => //= ip.
apply: contraNT => /imsetP hi; apply/eqP/ffunP=> f; rewrite exchange_other //.
case: ifP => // /andP[mv /eqP e]; case: hi; exists (block f) => //.
exact: moves_differ mv.
Qed.

Lemma exchange_few X p y c : distance X (exchange X p y c) <= #|differ (X p) y| + 1.
Proof.
apply: leq_trans (subset_leq_card (exchange_changed X p y c)) _.
by rewrite cardsU1 addnC leq_add ?leq_imset_card ?leq_b1.
Qed.

(* EXCHANGES STAY IN D_t: they keep all exact totals. *)
Theorem adjacent_same_totals X Y : adjacent X Y -> same_totals X Y.
Proof.
have h X' Y' : arises X' Y' -> same_totals X' Y'.
  by move=> /arisesP[p [y [c [_ hc ->]]]]; apply: exchange_totals.
by case/orP=> /h //; rewrite same_totals_sym.
Qed.

(* REACH BY EXCHANGE. Every person in every dataset becomes every possible y, unpublished features
   included, in one exchange. It changes at most one other record for every block in which x and y
   differ, and nobody else's unpublished features. *)
Theorem adjacent_reach X p y : inhabited X y ->
  exists Y, [/\ adjacent X Y, Y p = y, distance X Y <= #|differ (X p) y| + 1
    & forall i f, i != p -> (forall v w, node f v = node f w) -> Y i f = X i f].
Proof.
move=> hy; have [c hc] := carriers_exist p hy; exists (exchange X p y c); split.
- by apply/orP; left; apply/arisesP; exists p, y, c.
- exact: exchange_person.
- exact: exchange_few.
by move=> i f ip unpublished; rewrite exchange_other // /Features.moves (unpublished _ (y f)) eqxx.
Qed.

(* EXCHANGE IS INSIDE THE BALL A_{q+1}. *)
Theorem adjacent_in_ball X Y : adjacent X Y -> distance X Y <= #|active X| + 1.
Proof.
have h X' Y' : arises X' Y' -> distance X' Y' <= #|active X'| + 1.
  move=> /arisesP[p [y [c [hy hc ->]]]]; apply: leq_trans (exchange_few X' p y c) _.
  by rewrite leq_add2r subset_leq_card // differ_active.
move=> hXY; case/orP: (hXY) => /h // k.
have -> : distance X Y = distance Y X by apply: eq_card => i; rewrite !inE eq_sym.
by rewrite (same_active (adjacent_same_totals hXY)).
Qed.

(* FLAT FEATURES. If every feature is published at its leaves or not at all, an exchange is undone by
   an exchange, and "or X from Y" adds nothing. *)
Theorem arises_symmetric X Y :
  (forall f, injective (node f) \/ forall v w, node f v = node f w) -> arises X Y -> arises Y X.
Proof.
move=> flat /arisesP[p [y [c [_ hc ->]]]]; set Y' := exchange X p y c.
have Y'p : Y' p = y by apply: exchange_person.
have hc' : carriers Y' p (X p) c.
  apply/carriersP=> b; rewrite Y'p differ_sym => d.
  by rewrite /Y' exchange_tuple // d tpermR.
apply/arisesP; exists p, (X p), c; split=> //; first exact: carriers_inhabited hc'.
apply/ffunP=> i; case: (eqVneq i p) => [->|ip]; first by rewrite exchange_person.
apply/ffunP=> f; rewrite exchange_other // Y'p /Y' exchange_other //.
have -> : moves y (X p) f = moves (X p) y f by rewrite /Features.moves eq_sym.
case hm : (moves (X p) y f && (c (block f) == i)) => //.
have /andP[mv /eqP e] := hm; case: (flat f) => [inj|const].
  by rewrite -e; apply: inj; apply: carrier_node hc _ erefl; apply: moves_differ.
by move: mv; rewrite /Features.moves (const _ (y f)) eqxx.
Qed.

End Exchange.
