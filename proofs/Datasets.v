(* Datasets, exact totals, and the number a(t) of records that must change together.

   A record has a published value in every block. "Block" stands for any published margin: one
   feature, several features jointly, a feature at a coarser depth. Nothing is assumed here about
   how the blocks overlap; files that need disjoint blocks say so. *)
From mathcomp Require Import all_ssreflect fingroup perm.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Datasets.
(* R: the records that can exist. B: the published blocks. W: the values of a block.
   [published r b] is the value that record r has in block b. *)
Variables (R B W : finType) (published : R -> B -> W).
(* The number of records is public. *)
Variable n : nat.

(* A dataset is a list of n labeled records. *)
Definition dataset : finType := [finType of {ffun 'I_n -> R}].
Implicit Types (X Y Z : dataset) (p i j : 'I_n) (x y r : R) (b : B) (v : W).

(* The exact total of value v in block b: how many records have it. *)
Definition total X b v := #|[set i | published (X i) b == v]|.

(* X and Y have the same exact totals: both lie in the same D_t. *)
Definition same_totals X Y := [forall b, forall v, total X b v == total Y b v].

(* The records that differ, and their number. *)
Definition changed X Y := [set i | X i != Y i].
Definition distance X Y := #|changed X Y|.

(* y is possible: somebody is y in some dataset with the same totals. *)
Definition possible X y := [exists Y, same_totals X Y && [exists j, Y j == y]].

(* Every published value of y has a positive total. *)
Definition inhabited X y := [forall b, exists j, published (X j) b == published y b].

(* The blocks with at least two inhabited values. Their number is q. *)
Definition active X := [set b | [exists i, exists j, published (X i) b != published (X j) b]].

(* The blocks in which x and y differ. *)
Definition differ x y := [set b | published x b != published y b].

(* a(t) <= k, where t are the totals of X0: in EVERY dataset with these totals, EVERY person can
   become EVERY possible y if at most k records change (the person included) and all totals are
   kept. This is the worst case over X. *)
Definition suffices X0 k :=
  [forall X, forall p, forall y, same_totals X0 X ==> (possible X0 y ==>
     [exists Y, [&& same_totals X Y, Y p == y & distance X Y <= k]])].

(* ---- plain forms of the boolean definitions ---- *)

Lemma same_totalsP X Y :
  reflect (forall b v, total X b v = total Y b v) (same_totals X Y).
Proof.
apply: (iffP forallP) => [h b v|h b].
  by have /forallP/(_ v)/eqP := h b.
by apply/forallP=> v; apply/eqP.
Qed.

Lemma possibleP X y :
  reflect (exists Y j, same_totals X Y /\ Y j = y) (possible X y).
Proof.
apply: (iffP existsP) => [[Y /andP[h /existsP[j /eqP e]]]|[Y [j [h e]]]]; first by exists Y, j.
by exists Y; rewrite h; apply/existsP; exists j; apply/eqP.
Qed.

Lemma inhabitedP X y :
  reflect (forall b, exists j, published (X j) b = published y b) (inhabited X y).
Proof.
apply: (iffP forallP) => h b.
  by have /existsP[j /eqP] := h b; exists j.
by have [j /eqP e] := h b; apply/existsP; exists j.
Qed.

Lemma sufficesP X0 k :
  reflect (forall X p y, same_totals X0 X -> possible X0 y ->
             exists Y, [/\ same_totals X Y, Y p = y & distance X Y <= k])
          (suffices X0 k).
Proof.
apply: (iffP forallP) => [h X p y h1 h2|h X].
  have /forallP/(_ p)/forallP/(_ y) := h X; rewrite h1 h2 /= => /existsP[Y /and3P[? /eqP ? ?]].
  by exists Y.
apply/forallP=> p; apply/forallP=> y; apply/implyP=> h1; apply/implyP=> h2.
have [Y [? e ?]] := h X p y h1 h2.
by apply/existsP; exists Y; apply/and3P; split=> //; apply/eqP.
Qed.

(* ---- having the same totals is an equivalence ---- *)

Lemma same_totals_refl X : same_totals X X.
Proof. exact/same_totalsP. Qed.

Lemma same_totals_sym X Y : same_totals X Y = same_totals Y X.
Proof. by apply/same_totalsP/same_totalsP=> h b v. Qed.

Lemma same_totals_trans X Y Z : same_totals X Y -> same_totals Y Z -> same_totals X Z.
Proof. by move=> /same_totalsP h /same_totalsP k; apply/same_totalsP=> b v; rewrite h. Qed.

(* If in every block the published values of Y are a rearrangement of those of X, the totals agree. *)
Lemma rearranged_totals X Y (s : B -> {perm 'I_n}) :
  (forall i b, published (Y i) b = published (X (s b i)) b) -> same_totals X Y.
Proof.
move=> h; apply/same_totalsP=> b v; rewrite /total.
rewrite -(card_preimset [set i | published (X i) b == v] (@perm_inj _ (s b))).
by apply: eq_card => i; rewrite !inE h.
Qed.

(* ---- what is possible or active is a matter of the totals alone ---- *)

Lemma total_gt0 X b v : (0 < total X b v) = [exists j, published (X j) b == v].
Proof.
rewrite /total card_gt0; apply/set0Pn/existsP => [[j]|[j h]].
  by rewrite inE => h; exists j.
by exists j; rewrite inE.
Qed.

Lemma same_possible X Y y : same_totals X Y -> possible X y = possible Y y.
Proof.
move=> h; apply/possibleP/possibleP=> -[Z [j [hZ e]]]; exists Z, j; split=> //.
  by apply: same_totals_trans hZ; rewrite same_totals_sym.
exact: same_totals_trans hZ.
Qed.

Lemma same_inhabited X Y y : same_totals X Y -> inhabited X y = inhabited Y y.
Proof.
move=> /same_totalsP h; apply: eq_forallb => b.
by rewrite -!total_gt0 h.
Qed.

Lemma activeE X b :
  (b \in active X) = [exists v, exists w, [&& v != w, 0 < total X b v & 0 < total X b w]].
Proof.
rewrite inE; apply/existsP/existsP.
  move=> [i /existsP[j h]]; exists (published (X i) b); apply/existsP; exists (published (X j) b).
  by rewrite h !total_gt0 /=; apply/andP; split; apply/existsP; [exists i|exists j].
move=> [v /existsP[w /and3P[h]]]; rewrite !total_gt0 => /existsP[i /eqP ei] /existsP[j /eqP ej].
by exists i; apply/existsP; exists j; rewrite ei ej.
Qed.

Lemma same_active X Y : same_totals X Y -> active X = active Y.
Proof.
move=> /same_totalsP h; apply/setP=> b; rewrite !activeE.
by apply: eq_existsb => v; apply: eq_existsb => w; rewrite !h.
Qed.

(* Whoever is possible has inhabited values only. *)
Lemma possible_inhabited X y : possible X y -> inhabited X y.
Proof.
case/possibleP=> Y [j [h e]]; rewrite (same_inhabited _ h).
by apply/inhabitedP=> b; exists j; rewrite e.
Qed.

Lemma differ_active X p y : inhabited X y -> differ (X p) y \subset active X.
Proof.
move=> /inhabitedP h; apply/subsetP=> b; rewrite !inE => d.
by have [j e] := h b; apply/existsP; exists p; apply/existsP; exists j; rewrite e.
Qed.

Lemma differ_sym x y : differ x y = differ y x.
Proof. by apply/setP=> b; rewrite !inE eq_sym. Qed.

(* ---- distance ---- *)

Lemma distance0 X Y : distance X Y = 0 -> X = Y.
Proof.
move/eqP; rewrite cards_eq0 => /eqP e; apply/ffunP=> i; apply/eqP.
by rewrite -[_ == _]negbK -[_ != _](in_set (fun i => X i != Y i)) -/(changed X Y) e inE.
Qed.

Lemma distance_le_n X Y : distance X Y <= n.
Proof. by rewrite -[X in _ <= X]card_ord max_card. Qed.

(* Over any set of records outside which X and Y are equal, a block has the value v as often in X
   as in Y. *)
Lemma same_totals_on (D : {set 'I_n}) X Y b v : same_totals X Y -> changed X Y \subset D ->
  #|[set i in D | published (X i) b == v]| = #|[set i in D | published (Y i) b == v]|.
Proof.
move=> /same_totalsP/(_ b v) h /subsetP sub; move: h; rewrite /total.
rewrite -(cardsID D [set i | published (X i) b == v]) -(cardsID D [set i | published (Y i) b == v]).
have -> : [set i | published (X i) b == v] :\: D = [set i | published (Y i) b == v] :\: D.
  apply/setP=> i; rewrite !inE; case iD : (i \in D) => //=.
  by have := sub i; rewrite iD inE; case: eqP => [->//|_ /(_ isT)].
move/eqP; rewrite eqn_add2r => /eqP h.
have E Z : [set i in D | published (Z i) b == v] = [set i | published (Z i) b == v] :&: D.
  by apply/setP=> i; rewrite !inE andbC.
by rewrite !E.
Qed.

(* ---- a(t) ---- *)

(* Changing all n records always suffices: labels can be permuted. *)
Lemma suffices_n X0 : suffices X0 n.
Proof.
apply/sufficesP=> X p y hX /possibleP[Y [j [hY e]]].
exists [ffun i => Y (tperm p j i)]; split; rewrite ?ffunE ?tpermL //; last exact: distance_le_n.
apply: (@same_totals_trans _ Y); first by apply: same_totals_trans hY; rewrite same_totals_sym.
by apply: (@rearranged_totals _ _ (fun=> tperm p j)) => i b; rewrite ffunE.
Qed.

(* a(t): the smallest number of records that suffices. *)
Definition semi_adjacency X0 := ex_minn (ex_intro (suffices X0) _ (suffices_n X0)).

Lemma suffices_more X0 k l : k <= l -> suffices X0 k -> suffices X0 l.
Proof.
move=> kl /sufficesP h; apply/sufficesP=> X p y hX hy.
by have [Y [h1 h2 h3]] := h X p y hX hy; exists Y; split=> //; apply: leq_trans h3 kl.
Qed.

Lemma semi_adjacencyP X0 k : (semi_adjacency X0 <= k) = suffices X0 k.
Proof.
rewrite /semi_adjacency; case: ex_minnP => j hj least; apply/idP/idP; last exact: least.
by move=> jk; apply: suffices_more hj.
Qed.

End Datasets.
