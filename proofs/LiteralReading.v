(* The paper's definition of a(t), read literally, takes the infimum over both X and Y.
   It is then at most 2, however many blocks are published. *)
From mathcomp Require Import all_ssreflect fingroup perm zify.
Require Import Datasets Reach.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* The literal reading says k: for every person and all possible x and y, some X with X p = x and some Y
   with Y p = y, both with the given totals, differ in at most k records. *)
Definition literal_suffices (R B W : finType) (published : R -> B -> W) n (X0 : dataset R n) k :=
  [forall p, forall x, forall y, possible published X0 x ==> (possible published X0 y ==>
     [exists X : dataset R n, exists Y : dataset R n,
       [&& same_totals published X0 X, same_totals published X0 Y, X p == x, Y p == y
         & distance X Y <= k]])].

Section LiteralReading.
Variables (R B W : finType) (published : R -> B -> W) (n : nat).
Hypothesis blocks_independent : independent published.
Local Notation dataset := (dataset R n).
Local Notation same_totals := (@same_totals R B W published n).
Local Notation inhabited := (@inhabited R B W published n).
Local Notation differ := (@differ R B W published).
Implicit Types (X Y : dataset) (p : 'I_n) (x y : R) (b : B).

(* THE LITERAL READING. For every person and all x, y with inhabited values there are X and Y with
   the given totals, X p = x and Y p = y, that differ in at most two records. *)
Theorem literal_at_most_2 X0 p x y : inhabited X0 x -> inhabited X0 y ->
  exists X Y, [/\ same_totals X0 X, same_totals X0 Y, X p = x, Y p = y & distance X Y <= 2].
Proof.
move=> hx hy; have [X1 [t1 e1 _]] := reach blocks_independent p hx.
have hy1 : inhabited X1 y by rewrite -(same_inhabited _ t1).
case: (set_0Vmem (differ x y)) => [d0|[b0 hb0]].
  (* no published value changes: the person changes alone *)
  have [Y [t2 e2 k]] := reach blocks_independent p hy1.
  exists X1, Y; split=> //; first exact: same_totals_trans t1 t2.
  by apply: leq_trans k _; rewrite e1 d0 cards0.
(* carriers of y; bring all of their values together in one record j *)
have [k /carriersP hk] := carriers_exist p hy1; rewrite e1 in hk.
have kp b : b \in differ x y -> k b != p.
  move=> d; apply/eqP=> e; move: (hk b d); rewrite e e1 => h.
  by move: d; rewrite inE h eqxx.
pose j := k b0; have jp : j != p := kp b0 hb0.
pose s b : {perm 'I_n} := if b \in differ x y then tperm j (k b) else 1%g.
have sp b : s b p = p.
  by rewrite /s; case: ifP => [d|_]; rewrite ?perm1 // tpermD // kp.
pose X2 : dataset := [ffun i => if i == p then x
  else combine blocks_independent [ffun b => X1 (s b i)]].
have X2E i b : published (X2 i) b = published (X1 (s b i)) b.
  by rewrite ffunE; case: eqP => [->|_]; rewrite ?sp ?e1 // combineE ffunE.
have t2 : same_totals X1 X2 by apply: (@rearranged_totals _ _ _ _ _ _ _ s).
have X2p : X2 p = x by rewrite ffunE eqxx.
have hc : carriers published X2 p y [ffun=> j].
  by apply/carriersP=> b; rewrite X2p => d; rewrite ffunE X2E /s d tpermL hk.
have t3 : same_totals X0 X2 by apply: same_totals_trans t1 t2.
exists X2, (handover blocks_independent X2 p y [ffun=> j]); split=> //.
- exact: same_totals_trans t3 (handover_totals _ hc).
- exact: handover_person.
apply: leq_trans (subset_leq_card (handover_changed _ _ _ _ _)) _.
have sub : p |: [set [ffun=> j] b | b in differ (X2 p) y] \subset [set p; j].
  apply/subsetP=> i; rewrite !inE; case: eqP => //= _ /imsetP[b _ ->].
  by rewrite ffunE eqxx.
by apply: leq_trans (subset_leq_card sub) _; rewrite cards2; case: eqP.
Qed.

(* The same as a statement about the definition: the literal reading is at most 2. *)
Theorem literal_reading_at_most_2 (X0 : dataset) : literal_suffices published X0 2.
Proof.
apply/forallP=> p; apply/forallP=> x; apply/forallP=> y.
apply/implyP=> /possible_inhabited hx; apply/implyP=> /possible_inhabited hy.
have [X [Y [h1 h2 h3 h4 h5]]] := literal_at_most_2 p hx hy.
by apply/existsP; exists X; apply/existsP; exists Y; rewrite h1 h2 h3 h4 !eqxx.
Qed.

End LiteralReading.
