(* a(t) exactly, for independent blocks (flat, joint or nested; see Features.v):
   a(t) = q + 1 if and only if the smallest positive totals of the active blocks sum to at most n - 1. *)
From mathcomp Require Import all_ssreflect fingroup perm zify.
Require Import FiniteSets Datasets Reach.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section SemiAdjacency.
Variables (R B W : finType) (published : R -> B -> W) (n : nat).
Hypothesis blocks_independent : independent published.
Local Notation dataset := (dataset R n).
Local Notation total := (@total R B W published n).
Local Notation same_totals := (@same_totals R B W published n).
Local Notation possible := (@possible R B W published n).
Local Notation inhabited := (@inhabited R B W published n).
Local Notation active := (@active R B W published n).
Local Notation differ := (@differ R B W published).
Local Notation carriers := (@carriers R B W published n).
Local Notation suffices := (@suffices R B W published n).
Local Notation semi_adjacency := (@semi_adjacency R B W published n).
Implicit Types (X Y : dataset) (p i j : 'I_n) (y : R) (b : B).

(* The smallest positive total of block b (m_b). *)
Definition rarest X b := \big[minn/n]_(v | 0 < total X b v) total X b v.

Lemma rarest_le X b v : 0 < total X b v -> rarest X b <= total X b v.
Proof. by move=> h; apply: minimum_le; rewrite ?mem_index_enum. Qed.

Lemma rarest_attained X b : 'I_n -> exists2 v, 0 < total X b v & total X b v = rarest X b.
Proof.
move=> p; pose v0 := published (X p) b.
have h0 : 0 < total X b v0 by rewrite total_gt0; apply/existsP; exists p.
case: (minimum_attained (index_enum W) (fun v => 0 < total X b v) (total X b) n) => [e|[v h e]].
  exists v0 => //; apply/eqP; rewrite eqn_leq rarest_le // andbT /rarest e.
  by rewrite -[X in _ <= X]card_ord max_card.
by exists v.
Qed.

(* SOMEBODY NEEDS q HELPERS. If the smallest positive totals of the active blocks sum to at most
   n - 1, then in some dataset with these totals some person cannot become some possible y unless
   q + 1 records change: y has the rarest value of every block, and no record has two of them. *)
Theorem helpers_needed X0 :
  0 < #|active X0| -> \sum_(b in active X0) rarest X0 b <= n - 1 ->
  exists X p y, [/\ same_totals X0 X, inhabited X y
    & forall Y, same_totals X Y -> Y p = y -> #|active X0| + 1 <= distance X Y].
Proof.
move=> /card_gt0P[b0 hb0] hs.
have [p _] : exists p : 'I_n, True by move: hb0; rewrite inE => /existsP[p _]; exists p.
(* places for the rarest values: disjoint sets of records without p *)
have [A [hA disj]] : exists A : B -> {set 'I_n},
    (forall b, b \in active X0 -> A b \subset [set~ p] /\ #|A b| = rarest X0 b) /\
    (forall b b' i, b \in active X0 -> b' \in active X0 -> i \in A b -> i \in A b' -> b = b').
  by apply: disjoint_sets; rewrite cardsC1 card_ord -subn1.
(* somebody with the rarest value of block b, and y with all of them *)
pose owner b := odflt p [pick i | total X0 b (published (X0 i) b) == rarest X0 b].
have ownerP b : total X0 b (published (X0 (owner b)) b) = rarest X0 b.
  rewrite /owner; case: pickP => [i /eqP //|none].
  have [v h e] := rarest_attained X0 b p; move: h; rewrite total_gt0 => /existsP[i /eqP ei].
  by move: (none i); rewrite ei e eqxx.
pose y := combine blocks_independent [ffun b => X0 (owner b)].
have yE b : published y b = published (X0 (owner b)) b by rewrite combineE ffunE.
(* rearrange each block such that the rarest value is exactly at the places A b *)
have [s hs'] : exists s : B -> {perm 'I_n}, forall b, b \in active X0 ->
    forall i, (published (X0 (s b i)) b == published y b) = (i \in A b).
  have h b : exists t : {perm 'I_n}, (b \in active X0) ==>
      [forall i, (published (X0 (t i)) b == published y b) == (i \in A b)].
    case hb : (b \in active X0); last by exists 1%g.
    have [|t ht] := @permutation_between _ (A b) [set i | published (X0 i) b == published y b].
      by have [_ ->] := hA b hb; rewrite yE -(ownerP b).
    by exists t; apply/forallP=> i; have := ht i; rewrite inE => ->.
  exists (fun b => xchoose (h b)) => b hb i; have := xchooseP (h b).
  by move=> /implyP/(_ hb)/forallP/(_ i)/eqP.
pose X : dataset := [ffun i => combine blocks_independent [ffun b => X0 (s b i)]].
have XE i b : published (X i) b = published (X0 (s b i)) b by rewrite ffunE combineE ffunE.
have hX : same_totals X0 X by apply: (@rearranged_totals _ _ _ _ _ _ _ s) => i b; apply: XE.
have inA b i : b \in active X0 -> (published (X i) b == published y b) = (i \in A b).
  by move=> hb; rewrite XE hs'.
have pA b : b \in active X0 -> p \notin A b.
  by move=> hb; apply/negP=> hp; have [/subsetP/(_ p hp)] := hA b hb; rewrite !inE eqxx.
exists X, p, y; split=> //.
  by rewrite -(same_inhabited _ hX); apply/inhabitedP=> b; exists (owner b); rewrite yE.
move=> Y hY Yp.
(* in every active block somebody at the places A b has to give the value up *)
have give b : b \in active X0 -> exists i, (i \in A b) && (published (Y i) b != published y b).
  move=> hb; apply/existsP; apply: contraT; rewrite negb_exists => /forallP h.
  have sub : A b \subset [set i | published (Y i) b == published y b].
    by apply/subsetP=> i hi; have := h i; rewrite hi inE /= negbK.
  have cA : #|[set i | published (Y i) b == published y b]| <= #|A b|.
    have [_ ->] := hA b hb; rewrite -(ownerP b) -yE.
    by have /same_totalsP := same_totals_trans hX hY; move=> /(_ b (published y b)) ->.
  have e : A b = [set i | published (Y i) b == published y b] by apply/eqP; rewrite eqEcard sub.
  by have := pA b hb; rewrite e inE Yp eqxx.
pose f b := odflt p [pick i | (i \in A b) && (published (Y i) b != published y b)].
have fP b : b \in active X0 -> (f b \in A b) && (published (Y (f b)) b != published y b).
  rewrite /f => hb; case: pickP => [i //|none]; have [i h] := give b hb.
  by move: (none i); rewrite h.
have finj : {in active X0 &, injective f}.
  move=> b b' hb hb' e; have /andP[h1 _] := fP b hb; have /andP[h2 _] := fP b' hb'.
  by apply: (disj b b' (f b)) => //; rewrite e.
have pf : p \notin [set f b | b in active X0].
  by apply/imsetP=> -[b hb e]; have /andP[] := fP b hb; rewrite -e (negbTE (pA b hb)).
have -> : #|active X0| + 1 = #|p |: [set f b | b in active X0]|.
  by rewrite cardsU1 pf (card_in_imset finj) addnC.
apply: subset_leq_card; apply/subsetP=> i; rewrite in_setU1 => /orP[/eqP ->|/imsetP[b hb ->]].
  rewrite inE Yp; apply/eqP=> e; have := pA b0 hb0.
  by rewrite -inA // e eqxx.
rewrite inE; have /andP[h1 h2] := fP b hb; apply: contraNneq h2 => <-.
by rewrite inA.
Qed.

(* If one record has y's value in two of the blocks, one helper is saved. *)
Lemma shared_carrier X p y b1 b2 j : inhabited X y -> b1 != b2 ->
  b1 \in differ (X p) y -> b2 \in differ (X p) y ->
  published (X j) b1 = published y b1 -> published (X j) b2 = published y b2 ->
  exists Y, [/\ same_totals X Y, Y p = y & distance X Y <= #|differ (X p) y|].
Proof.
move=> hy b12 d1 d2 e1 e2; have [c0 /carriersP h0] := carriers_exist p hy.
pose c := [ffun b => if published (X j) b == published y b then j else c0 b].
have hc : carriers X p y c.
  by apply/carriersP=> b d; rewrite /c ffunE; case: eqP => // _; apply: h0.
have c1 : c b1 = j by rewrite /c ffunE e1 eqxx.
have c2 : c b2 = j by rewrite /c ffunE e2 eqxx.
exists (handover blocks_independent X p y c).
split; [exact: handover_totals|exact: handover_person|].
apply: leq_trans (subset_leq_card (handover_changed _ X p y c)) _.
have -> : [set c b | b in differ (X p) y] = [set c b | b in differ (X p) y :\ b1].
  apply/setP=> i; apply/imsetP/imsetP=> -[b hb ->].
    case: (eqVneq b b1) => [->|nb]; last by exists b; rewrite // in_setD1 nb.
    by exists b2; [rewrite in_setD1 eq_sym b12|rewrite c1 c2].
  by exists b => //; move: hb; rewrite in_setD1 => /andP[].
rewrite cardsU1 (cardsD1 b1 (differ (X p) y)) d1.
exact: leq_add (leq_b1 _) (leq_imset_card _ _).
Qed.

(* OTHERWISE q RECORDS SUFFICE. If the smallest positive totals sum to n or more, and the person
   changes in all active blocks, two of the blocks have a common carrier. *)
Theorem helper_saved X0 : n <= \sum_(b in active X0) rarest X0 b -> suffices X0 #|active X0|.
Proof.
move=> hs; apply/sufficesP=> X p y hX /possible_inhabited hy0.
have hy : inhabited X y by rewrite -(same_inhabited _ hX).
have sub := differ_active p hy; rewrite -(same_active hX) in sub.
case: (boolP (differ (X p) y == active X0)) => [/eqP dA|dA]; last first.
  have lt : #|differ (X p) y| < #|active X0| by rewrite proper_card // properEneq dA.
  have [Y [h e k]] := reach blocks_independent p hy; exists Y; split=> //.
  by apply: leq_trans k _; rewrite addn1.
(* the blocks for which record i could be the carrier *)
pose serves i := [set b in active X0 | published (X i) b == published y b].
have [j hj] : exists j, 1 < #|serves j|.
  apply/existsP; apply: contraT; rewrite negb_exists => /forallP h.
  have p0 : #|serves p| = 0.
    apply/eqP; rewrite cards_eq0; apply/eqP/setP=> b; rewrite in_set in_set0 -dA inE.
    by case: eqP.
  have e : \sum_(b in active X0) total X b (published y b) = \sum_i #|serves i|.
    transitivity (\sum_(b in active X0) \sum_i (published (X i) b == published y b)).
      apply: eq_bigr => b _; rewrite /total -sum1_card big_mkcond; apply: eq_bigr => i _.
      by rewrite inE; case: eqP.
    rewrite exchange_big; apply: eq_bigr => i _; rewrite -sum1_card big_mkcond [RHS]big_mkcond.
    by apply: eq_bigr => b _; rewrite [b \in serves i]in_set; case: (b \in active X0); case: eqP.
  have le1 : n <= \sum_i #|serves i|.
    apply: leq_trans hs _; rewrite -e; apply: leq_sum => b _.
    have /same_totalsP <- := hX; apply: rarest_le; rewrite total_gt0; exact: (forallP hy0 b).
  have : \sum_i #|serves i| <= \sum_(i | i != p) 1.
    by rewrite (bigD1 p) //= p0 add0n; apply: leq_sum => i _; rewrite leqNgt.
  rewrite sum1_card (eq_card (_ : _ =i [set~ p])); last by move=> i; rewrite !inE.
  rewrite cardsC1 card_ord => /(leq_trans le1); have := ltn_ord p; lia.
case/card_gt1P: hj => b1 [b2 [h1 h2 b12]].
move: h1 h2; rewrite ![_ \in serves j]in_set => /andP[a1 /eqP e1] /andP[a2 /eqP e2].
have := @shared_carrier X p y b1 b2 j hy b12; rewrite !dA => /(_ a1 a2 e1 e2).
by [].
Qed.

(* a(t) EXACTLY. With at least one active block: a(t) = q + 1 if and only if the smallest positive
   totals of the active blocks sum to at most n - 1. (Otherwise a(t) <= q.) *)
Theorem semi_adjacency_exact X0 : 0 < #|active X0| ->
  (semi_adjacency X0 == #|active X0| + 1) = (\sum_(b in active X0) rarest X0 b <= n - 1).
Proof.
move=> q0; apply/idP/idP => [/eqP e|hs].
  rewrite leqNgt; apply/negP=> lt.
  have : semi_adjacency X0 <= #|active X0| by rewrite semi_adjacencyP helper_saved //; lia.
  by rewrite e addn1 ltnn.
rewrite eqn_leq semi_adjacency_bound //=.
have [X [p [y [hX hy need]]]] := helpers_needed q0 hs.
have : suffices X0 (semi_adjacency X0) by rewrite -semi_adjacencyP.
move=> /sufficesP/(_ X p y hX); rewrite (possible_iff_inhabited blocks_independent _ _ p).
rewrite (same_inhabited _ hX) => /(_ hy)[Y [hY Yp hk]].
exact: leq_trans (need Y hY Yp) hk.
Qed.

(* NOBODY ALONE. With an active block a(t) >= 2: whoever changes a published value needs a helper. *)
Theorem semi_adjacency_ge2 X0 : 0 < #|active X0| -> 2 <= semi_adjacency X0.
Proof.
case/card_gt0P=> b; rewrite inE => /existsP[i /existsP[j ij]].
rewrite leqNgt ltnS semi_adjacencyP; apply/negP.
move=> /sufficesP/(_ X0 i (X0 j) (same_totals_refl _ X0)) h.
have {}h : exists Y, [/\ same_totals X0 Y, Y i = X0 j & distance X0 Y <= 1].
  by apply: h; apply/possibleP; exists X0, j; rewrite same_totals_refl.
case: h => Y [hY Yi h1].
have iC : i \in changed X0 Y by rewrite inE Yi; apply: contraNneq ij => ->.
have sub : changed X0 Y \subset [set i].
  by apply/subsetP=> k kC; rewrite inE; apply/eqP; apply: (card_le1_eqP h1).
have := same_totals_on b (published (X0 j) b) hY sub.
have -> : [set k in [set i] | published (X0 k) b == published (X0 j) b] = set0.
  by apply/setP=> k; rewrite !inE; case: eqP => // ->; rewrite (negbTE ij).
have -> : [set k in [set i] | published (Y k) b == published (X0 j) b] = [set i].
  by apply/setP=> k; rewrite !inE; case: eqP => // ->; rewrite Yi eqxx.
by rewrite cards0 cards1.
Qed.

(* The rarest value of an active block belongs to at most half of the records. *)
Lemma rarest_half X b : b \in active X -> 2 * rarest X b <= n.
Proof.
rewrite activeE => /existsP[v /existsP[w /and3P[vw hv hw]]].
have := rarest_le hv; have := rarest_le hw.
have : total X b v + total X b w <= n.
  have /eqP <- : #|[set i | published (X i) b == v] :|: [set i | published (X i) b == w]|
      == total X b v + total X b w.
    rewrite leq_card_setU -setI_eq0; apply/eqP/setP=> i; rewrite !inE.
    by case: eqP => // ->; rewrite (negbTE vw).
  by rewrite -[X in _ <= X]card_ord max_card.
lia.
Qed.

(* TWO BLOCKS. With two active blocks a(t) = 3, unless in both of them the rarest value belongs to
   exactly half of the records. *)
Theorem semi_adjacency_two_blocks X0 : #|active X0| = 2 ->
  (semi_adjacency X0 == 3) = ~~ [forall (b | b \in active X0), 2 * rarest X0 b == n].
Proof.
move=> q2; have q0 : 0 < #|active X0| by rewrite q2.
have := semi_adjacency_exact q0; rewrite q2 => ->.
have /eqP/cards2P[b1 [b2 [b12 e]]] := q2.
have h1 : 2 * rarest X0 b1 <= n by rewrite rarest_half // e !inE eqxx.
have h2 : 2 * rarest X0 b2 <= n by rewrite rarest_half // e !inE eqxx orbT.
have n0 : 0 < n.
  by case/card_gt0P: q0 => b; rewrite inE => /existsP[i _]; apply: leq_ltn_trans (ltn_ord i).
rewrite {1}e big_setU1 ?inE //= big_set1; apply/idP/idP => [hs|].
  apply/forallP=> h; have /implyP := h b1; have /implyP := h b2; rewrite e !inE !eqxx orbT /=.
  by move=> /(_ isT)/eqP ? /(_ isT)/eqP ?; lia.
apply: contraNT; rewrite -ltnNge => hs; apply/forallP=> b; apply/implyP; rewrite e !inE.
by case/orP=> /eqP ->; apply/eqP; lia.
Qed.

End SemiAdjacency.
