(* The chain lemma, and what a guarantee for exchanges says about the ball. *)
From mathcomp Require Import all_ssreflect fingroup perm.
Require Import Datasets Reach Features Exchange.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Chain.
Variables (n : nat) (F B V N : finType) (block : F -> B) (node : F -> V -> N).
Local Notation record := (record F V).
Local Notation tuple_in := (@tuple_in F B V N block node).
Local Notation dataset := (dataset record n).
Local Notation same_totals := (@same_totals record B _ tuple_in n).
Local Notation adjacent := (@adjacent n F B V N block node).
Implicit Types (X Y Z : dataset) (p : 'I_n).

(* One step: some exchange gives person p the record that p has in Y, and changes only records that
   differ between X and Y. *)
Lemma chain_step X Y p : same_totals X Y -> p \in changed X Y ->
  exists2 Z, adjacent X Z & changed Z Y \subset changed X Y :\ p.
Proof.
move=> hXY hp; pose D := changed X Y.
(* carriers of Y p can be chosen among the records that differ *)
pose c := [ffun b => odflt p [pick j | (j \in D) && (tuple_in (X j) b == tuple_in (Y p) b)]].
have hc b : c b \in D /\ tuple_in (X (c b)) b = tuple_in (Y p) b.
  rewrite /c ffunE; case: pickP => [j /andP[jD /eqP e] //|none].
  have : 0 < #|[set i in D | tuple_in (X i) b == tuple_in (Y p) b]|.
    rewrite (same_totals_on _ _ hXY) //; apply/card_gt0P; exists p.
    by rewrite in_set eqxx andbT.
  by case/card_gt0P=> j; rewrite inE none.
have hC : carriers tuple_in X p (Y p) c by apply/carriersP=> b _; case: (hc b).
exists (exchange block node X p (Y p) c).
  apply/orP; left; apply/arisesP; exists p, (Y p), c; split=> //.
  exact: carriers_inhabited hC.
apply/subsetP=> i; rewrite in_setD1 [i \in changed _ Y]inE.
case: (eqVneq i p) => [->|ip]; first by rewrite exchange_person eqxx.
apply: contraR => /= iD.
have : i \notin changed X (exchange block node X p (Y p) c).
  apply: contra iD => /(subsetP (exchange_changed _ _ _ _ _ _)); rewrite in_setU1 (negbTE ip) /=.
  by case/imsetP=> b _ ->; have [] := hc b.
by move: iD; rewrite !inE !negbK => /eqP e1 /eqP e2; rewrite -e2 e1.
Qed.

(* CHAIN LEMMA. Two datasets with the same totals that differ in k records are joined by a chain of
   at most k exchanges. *)
Theorem chain X Y : same_totals X Y ->
  exists s : seq dataset, [/\ path adjacent X s, last X s = Y & size s <= distance X Y].
Proof.
move: {2}(distance X Y) (leqnn (distance X Y)) => k; elim: k X => [|k IH] X.
  by rewrite leqn0 => /eqP/distance0 e _; exists [::].
move=> hk hXY; case: (set_0Vmem (changed X Y)) => [e|[p hp]].
  by exists [::]; split=> //; apply: distance0; rewrite /distance e cards0.
have [Z hXZ hZ] := chain_step hXY hp.
have lt : distance Z Y < distance X Y.
  by rewrite /distance (cardsD1 p (changed X Y)) hp add1n ltnS subset_leq_card.
have hZY : same_totals Z Y.
  by apply: same_totals_trans hXY; rewrite same_totals_sym adjacent_same_totals.
have [s [ps ls ss]] := IH Z (leq_trans lt hk : distance Z Y <= k) hZY.
by exists (Z :: s); split=> //=; [rewrite hXZ|apply: leq_ltn_trans ss lt].
Qed.

(* D_t IS CONNECTED: exchanges lead from X to Y if and only if X and Y have the same totals. *)
Theorem connected_iff_same_totals X Y : connect adjacent X Y = same_totals X Y.
Proof.
apply/idP/idP.
  case/connectP=> s; elim: s X => [|Z s IH] X /=; first by move=> _ ->; apply: same_totals_refl.
  by case/andP=> /adjacent_same_totals h ps e; apply: same_totals_trans h (IH Z ps e).
by move=> /chain[s [ps <- _]]; apply/connectP; exists s.
Qed.

End Chain.

(* A tradeoff function f is nondecreasing with f(x) <= x. [accept X] is the probability that a test,
   applied to what is published from X, does not reject. "f holds for the pair (X, Y)" says
   f (accept X) <= accept Y for every test. If f holds along every step of a chain of at most k
   steps, then f o ... o f (k times) holds for its ends. *)
Lemma group_privacy (d : unit) (P : porderType d) (T : Type) (step : rel T) (f : P -> P)
    (accept : T -> P) (k : nat) X s :
  (forall u v : P, (u <= v)%O -> (f u <= f v)%O) -> (forall u : P, (f u <= u)%O) ->
  (forall X Y, step X Y -> (f (accept X) <= accept Y)%O) ->
  path step X s -> size s <= k -> (iter k f (accept X) <= accept (last X s))%O.
Proof.
move=> mono low hf; have mono_iter j u v : (u <= v)%O -> (iter j f u <= iter j f v)%O.
  by elim: j => //= j IH h; apply: mono; apply: IH.
have low_iter j u : (iter j f u <= u)%O.
  by elim: j => //= j IH; apply: Order.POrderTheory.le_trans (low _) IH.
elim: s X k => [|Z s IH] X k /=; first by move=> _ _; apply: low_iter.
case: k => // k /andP[h hs] hk; rewrite iterSr.
apply: Order.POrderTheory.le_trans (mono_iter k _ _ (hf X Z h)) _.
exact: IH.
Qed.

(* FROM EXCHANGES TO THE BALL. If the tradeoff function f holds for all exchanges, then f composed
   a times with itself holds for all pairs with the same totals that differ in at most a records. *)
Theorem exchange_to_ball n (F B V N : finType) (block : F -> B) (node : F -> V -> N)
    (d : unit) (P : porderType d) (f : P -> P) (accept : dataset (record F V) n -> P) a X Y :
  (forall u v : P, (u <= v)%O -> (f u <= f v)%O) -> (forall u : P, (f u <= u)%O) ->
  (forall X Y, adjacent block node X Y -> (f (accept X) <= accept Y)%O) ->
  same_totals (tuple_in block node) X Y -> distance X Y <= a -> (iter a f (accept X) <= accept Y)%O.
Proof.
move=> mono low hf /chain[s [ps <- ss]] hk.
exact: (group_privacy mono low hf ps (leq_trans ss hk)).
Qed.
