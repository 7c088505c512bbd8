(* Facts about finite sets and sums that the other files use. None of them is about privacy. *)
From mathcomp Require Import all_ssreflect fingroup perm zify.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* A set has subsets of every smaller size. *)
Lemma subset_of_size (T : finType) (W : {set T}) k :
  k <= #|W| -> exists2 A : {set T}, A \subset W & #|A| = k.
Proof.
move=> h; have : 0 < #|[set A : {set T} | A \subset W & #|A| == k]|.
  by rewrite cards_draws bin_gt0.
by case/card_gt0P=> A; rewrite inE => /andP[s /eqP e]; exists A.
Qed.

(* Disjoint subsets of given sizes exist if the sizes fit. *)
Lemma disjoint_sets (T I : finType) (size_of : I -> nat) (S : {set I}) (W : {set T}) :
  \sum_(b in S) size_of b <= #|W| ->
  exists A : I -> {set T}, (forall b, b \in S -> A b \subset W /\ #|A b| = size_of b) /\
    (forall b b' i, b \in S -> b' \in S -> i \in A b -> i \in A b' -> b = b').
Proof.
move: {2}#|S| (leqnn #|S|) => k; elim: k S W => [|k IH] S W.
  rewrite leqn0 cards_eq0 => /eqP -> _; exists (fun=> set0); split=> [b|b b' i]; by rewrite inE.
move=> hk hs; case: (set_0Vmem S) => [->|[b0 hb0]].
  by exists (fun=> set0); split=> [b|b b' i]; rewrite inE.
move: hs; rewrite (big_setD1 b0) //= => hs.
have [A0 sA0 cA0] := @subset_of_size _ W (size_of b0) (leq_trans (leq_addr _ _) hs).
have cW : #|W :\: A0| = #|W| - size_of b0 by rewrite cardsD (setIidPr sA0) cA0.
have [] := IH (S :\ b0) (W :\: A0).
- by move: hk; rewrite (cardsD1 b0 S) hb0.
- by rewrite cW; lia.
move=> A [h1 h2]; exists (fun b => if b == b0 then A0 else A b); split.
  move=> b hb; case: eqP => [->//|/eqP n0]; have [] := h1 b; first by rewrite !inE n0.
  by move=> s ->; split=> //; apply: subset_trans s (subsetDl _ _).
have out b i : b \in S -> b != b0 -> i \in A b -> i \notin A0.
  move=> hb n0 hi; have [] := h1 b; first by rewrite !inE n0.
  by move=> /subsetP/(_ i hi); rewrite inE => /andP[].
move=> b b' i hb hb'; case: (eqVneq b b0) => [->|n0]; case: (eqVneq b' b0) => [->|n0'] //.
- by move=> hi /(out _ _ hb' n0'); rewrite hi.
- by move=> /(out _ _ hb n0) + hi; rewrite hi.
by apply: h2; rewrite !inE ?n0 ?n0'.
Qed.

(* Some permutation maps a set to any other set of the same size. *)
Lemma permutation_between (T : finType) (A A' : {set T}) :
  #|A| = #|A'| -> exists s : {perm T}, forall i, (s i \in A') = (i \in A).
Proof.
move=> e; pose l (C : {set T}) := enum C ++ enum (~: C).
have sl C : size (l C) = #|T| by rewrite size_cat -!cardE cardsC.
have ml C i : i \in l C by rewrite mem_cat !mem_enum inE orbN.
have ul C : uniq (l C).
  rewrite cat_uniq !enum_uniq andbT /=; apply/hasPn => i.
  by rewrite /= !mem_enum inE.
pose f i := nth i (l A') (index i (l A)).
have lt i : index i (l A) < size (l A') by rewrite sl -(sl A) index_mem.
have fi : injective f.
  move=> i j; rewrite /f (set_nth_default i j (lt j)) => /eqP; rewrite nth_uniq //.
  by move=> /eqP h; rewrite -(nth_index i (ml A i)) h nth_index.
exists (perm fi) => i; rewrite permE /f nth_cat -cardE -e cardE index_cat !mem_enum.
case iA : (i \in A).
  have h : index i (enum A) < size (enum A) by rewrite index_mem mem_enum.
  by rewrite h -(mem_enum A') mem_nth // -cardE -e cardE.
rewrite ltnNge leq_addr /= addKn; apply/negbTE.
have h : index i (enum (~: A)) < size (enum (~: A')).
  have -> : size (enum (~: A')) = size (enum (~: A)).
    by rewrite -!cardE; apply/eqP; rewrite -(eqn_add2l #|A|) {1}e !cardsC.
  by rewrite index_mem mem_enum inE iA.
by have := mem_nth i h; rewrite mem_enum inE.
Qed.

(* A minimum over a list is at most each of its values ... *)
Lemma minimum_le (T : eqType) (s : seq T) (P : pred T) (F : T -> nat) N v :
  v \in s -> P v -> \big[minn/N]_(i <- s | P i) F i <= F v.
Proof.
elim: s => // a s IH; rewrite inE big_cons => /orP[/eqP <- ->|hv Pv]; first exact: geq_minl.
by case: (P a); rewrite ?geq_min IH ?orbT.
Qed.

(* ... and is one of them, or the default. *)
Lemma minimum_attained (T : eqType) (s : seq T) (P : pred T) (F : T -> nat) N :
  \big[minn/N]_(i <- s | P i) F i = N \/ exists2 v, P v & \big[minn/N]_(i <- s | P i) F i = F v.
Proof.
elim: s => [|a s IH]; rewrite ?big_nil ?big_cons; first by left.
case Pa : (P a) => //; rewrite /minn; case: ltnP => _ //.
by right; exists a.
Qed.
