(* Rule "sums". Sums of private outcomes by public groups under the ball A_a: if the number
   of records with an outcome in each group follows from t, the sums move by at most a(u - l). *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Tables.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section OneSetOfGroups.
(* What the sums see of record i: [Some (g, y)] if it lies in group g and has outcome y, [None] if its
   outcome is missing (or it lies in no group). *)
Variables (I G : finType).
Implicit Types (X Y : I -> option (G * int)) (D : {set I}) (g : G).

Definition counts_for X g i := if X i is Some z then z.1 == g else false.
Definition outcome X i := if X i is Some z then z.2 else 0.

(* The number of records with an outcome in group g, and their sum. *)
Definition answered X g := #|[set i | counts_for X g i]|.
Definition group_sum X g : int := \sum_(i | counts_for X g i) outcome X i.

(* All outcomes lie in [l, u]. *)
Definition in_range (l u : int) X := forall i z, X i = Some z -> l <= z.2 <= u.

Definition in_group D X g := [set i in D | counts_for X g i].

Lemma sum_parts X D g : group_sum X g =
  \sum_(i in in_group D X g) outcome X i + \sum_(i | (i \notin D) && counts_for X g i) outcome X i.
Proof.
rewrite /group_sum (bigID (mem D)) /=; congr (_ + _); apply: eq_bigl => i; by rewrite ?inE andbC.
Qed.

Lemma answered_parts X D g : answered X g =
  (#|in_group D X g| + #|[set i | (i \notin D) && counts_for X g i]|)%N.
Proof.
rewrite /answered -(cardsID D); congr (_ + _)%N; apply: eq_card => i; by rewrite !inE // andbC.
Qed.

Lemma range_of_sum l u X (A : {set I}) g : in_range l u X -> {subset A <= counts_for X g} ->
  l * #|A|%:Z <= \sum_(i in A) outcome X i <= u * #|A|%:Z.
Proof.
move=> h sub; have E (z : int) : z * #|A|%:Z = \sum_(i in A) z by rewrite sumr_const -mulr_natr natz.
rewrite !E; apply/andP; split; apply: ler_sum => i /sub; rewrite /counts_for /outcome -topredE /=;
  by case e : (X i) => [z|] // _; have /andP[] := h i z e.
Qed.

(* GROUP SUMS. All outcomes lie in [l, u]; X and Y differ in at most a records and have the same number
   of records WITH AN OUTCOME in every group. Then the group sums differ by at most a(u - l) in l1. *)
Theorem group_sums (l u : int) X Y (a : nat) : l <= u -> in_range l u X -> in_range l u Y ->
  (forall g, answered X g = answered Y g) -> (#|[set i | X i != Y i]| <= a)%N ->
  \sum_g `|group_sum X g - group_sum Y g| <= a%:Z * (u - l).
Proof.
move=> lu hX hY same near; pose D := [set i | X i != Y i].
have out i g : i \notin D -> counts_for X g i = counts_for Y g i /\ outcome X i = outcome Y i.
  by rewrite inE negbK /counts_for /outcome => /eqP ->.
pose k g := #|in_group D X g|.
have kY g : #|in_group D Y g| = k g.
  have := same g; rewrite (answered_parts X D) (answered_parts Y D).
  have -> : [set i | (i \notin D) && counts_for X g i] = [set i | (i \notin D) && counts_for Y g i].
    apply/setP=> i; rewrite [LHS]in_set [RHS]in_set.
    by case: (boolP (i \in D)) => //= /(out i g)[-> _].
  by move/eqP; rewrite eqn_add2r => /eqP.
have kD : (\sum_g k g <= #|D|)%N.
  rewrite /k -sum1_card; under eq_bigr do rewrite -sum1_card.
  rewrite (exchange_big_dep (mem D)) /=; last by move=> g i _; rewrite in_set => /andP[].
  apply: leq_sum => i iD; rewrite sum1_card.
  have inE' g : pred_of_set (in_group D X g) i = (i \in D) && counts_for X g i.
    by rewrite -[LHS]/(i \in in_group D X g) in_set.
  case e : (X i) => [z|]; last first.
    by rewrite eq_card0 // => g; rewrite unfold_in inE' /counts_for e andbF.
  rewrite -(card1 z.1); apply: subset_leq_card; apply/subsetP=> g.
  by rewrite unfold_in inE' /counts_for e => /andP[_ /eqP ->]; rewrite inE.
apply: (@le_trans _ _ (\sum_g (k g)%:Z * (u - l))).
  apply: ler_sum => g _; rewrite (sum_parts X D) (sum_parts Y D).
  have -> : \sum_(i | (i \notin D) && counts_for X g i) outcome X i =
            \sum_(i | (i \notin D) && counts_for Y g i) outcome Y i.
    rewrite big_mkcond [RHS]big_mkcond; apply: eq_bigr => i _.
    by case: (boolP (i \in D)) => //= /(out i g)[-> ->].
  rewrite opprD addrACA subrr addr0.
  have inX : {subset in_group D X g <= counts_for X g} by move=> i; rewrite inE => /andP[].
  have inY : {subset in_group D Y g <= counts_for Y g} by move=> i; rewrite inE => /andP[].
  have := range_of_sum hX inX; have := range_of_sum hY inY.
  rewrite kY -/(k g); move: (\sum_(i in _) _) (\sum_(i in _) _) => sY sX /andP[h1 h2] /andP[h3 h4].
  rewrite ler_norml mulrBr opprB ![_%:Z * _]mulrC.
  by apply/andP; split; apply: ler_sub.
rewrite -mulr_suml ler_wpmul2r ?subr_ge0 // -Posz_sum lez_nat.
exact: leq_trans kD near.
Qed.

(* The squares of numbers sum to at most the square of the sum of their absolute values. *)
Lemma squares_le_l1 (J : finType) (d : J -> int) (b : int) :
  \sum_g `|d g| <= b -> \sum_g d g ^+ 2 <= b ^+ 2.
Proof.
move=> h; have pos : 0 <= \sum_g `|d g| by apply: sumr_ge0 => g _; apply: normr_ge0.
apply: (@le_trans _ _ ((\sum_g `|d g|) ^+ 2)); last by rewrite ler_expn2r ?nnegrE ?(le_trans pos h).
rewrite expr2 mulr_suml; apply: ler_sum => g _.
rewrite -[d g ^+ 2]real_normK ?num_real // expr2 ler_wpmul2l ?normr_ge0 //.
by rewrite (bigD1 g) //= ler_addl; apply: sumr_ge0 => g' _; apply: normr_ge0.
Qed.

End OneSetOfGroups.

(* SEVERAL SETS OF GROUPS, SEVERAL OUTCOMES. p sets of groups (S) and outcomes o in O with ranges
   [l o, u o], each as in [group_sums]. Then all sums together move by at most p a sum_o (u_o - l_o) in
   l1 and by at most p sum_o (a (u_o - l_o))^2 in squared l2; with equal ranges these are
   p |O| a (u - l) and p |O| (a (u - l))^2. *)
Theorem several_group_sums (I G S O : finType) (X Y : S -> O -> I -> option (G * int))
    (l u : O -> int) (a : nat) :
  (forall o, l o <= u o) ->
  (forall s o, in_range (l o) (u o) (X s o)) -> (forall s o, in_range (l o) (u o) (Y s o)) ->
  (forall s o g, answered (X s o) g = answered (Y s o) g) ->
  (#|[set i | [exists s, exists o, X s o i != Y s o i]]| <= a)%N ->
  \sum_s \sum_o \sum_g `|group_sum (X s o) g - group_sum (Y s o) g|
    <= #|S|%:Z * (\sum_o a%:Z * (u o - l o)) /\
  \sum_s \sum_o \sum_g (group_sum (X s o) g - group_sum (Y s o) g) ^+ 2
    <= #|S|%:Z * (\sum_o (a%:Z * (u o - l o)) ^+ 2).
Proof.
move=> lu hX hY same near.
have one s o : \sum_g `|group_sum (X s o) g - group_sum (Y s o) g| <= a%:Z * (u o - l o).
  apply: group_sums => //; apply: leq_trans near; apply: subset_leq_card; apply/subsetP=> i.
  by rewrite !inE => h; apply/existsP; exists s; apply/existsP; exists o.
have E (z : int) : #|S|%:Z * z = \sum_(s : S) z by rewrite sumr_const -mulr_natl natz.
rewrite !E; split; apply: ler_sum => s _; apply: ler_sum => o _; first exact: one.
exact: squares_le_l1.
Qed.

(* WHO ANSWERED IS PRIVATE. If only the group sizes are public, a missing outcome counts as 0 in the
   sum, and the sums move by at most a (max(u, 0) - min(l, 0)) in l1. *)
Theorem group_sums_private_answers (I G : finType) (X Y : I -> G * option int) (l u : int) (a : nat)
    (seen := fun (Z : I -> G * option int) i => Some ((Z i).1, odflt 0 (Z i).2)) :
  (forall i y, (X i).2 = Some y -> l <= y <= u) -> (forall i y, (Y i).2 = Some y -> l <= y <= u) ->
  (forall g, #|[set i | (X i).1 == g]| = #|[set i | (Y i).1 == g]|) ->
  (#|[set i | X i != Y i]| <= a)%N ->
  \sum_g `|group_sum (seen X) g - group_sum (seen Y) g|
    <= a%:Z * (Num.max u 0 - Num.min l 0).
Proof.
move=> hX hY same near; apply: group_sums.
- by apply: (@le_trans _ _ 0); rewrite ?le_minl ?le_maxr lexx orbT.
- move=> i z [<-] /=; case e : (X i).2 => [y|] /=; last by rewrite le_minl le_maxr lexx !orbT.
  by have /andP[h1 h2] := hX i y e; rewrite le_minl le_maxr h1 h2.
- move=> i z [<-] /=; case e : (Y i).2 => [y|] /=; last by rewrite le_minl le_maxr lexx !orbT.
  by have /andP[h1 h2] := hY i y e; rewrite le_minl le_maxr h1 h2.
- by move=> g; apply: same.
apply: leq_trans near; apply: subset_leq_card; apply/subsetP=> i; rewrite !inE.
by apply: contraNneq; rewrite /seen => ->.
Qed.
