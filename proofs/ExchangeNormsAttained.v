(* The exchange norms are attained for every number of blocks, if the table has a feature
   that is not published: the bounds 2(q + 1) and q^2 + q + 2 cannot be improved. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach Features Exchange Tables ExchangeNorms.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.

Section NothingCancels.
Variables (I C : finType) (f g : I -> C).
Hypothesis apart : forall i j, f i != g j.

(* If no cell before is a cell after, nothing cancels: the l1 norm is twice the number of records ... *)
Lemma l1_apart : l1 f g = Posz (2 * #|I|).
Proof.
have none c : count_in setT f c = 0%N \/ count_in setT g c = 0%N.
  case: (boolP [exists i, f i == c]) => [/existsP[i /eqP e]|/existsPn h]; [right|left].
    by apply: big1 => j _; rewrite -e eq_sym (negbTE (apart i j)).
  by apply: big1 => j _; rewrite (negbTE (h j)).
transitivity (\sum_c (Posz (count_in setT f c) + Posz (count_in setT g c)))%R.
  apply: eq_bigr => c _; rewrite (@table_change _ _ setT); last by move=> i; rewrite inE.
  by case: (none c) => ->; rewrite ?sub0r ?subr0 ?normrN ger0_norm ?add0r ?addr0.
by rewrite big_split /= -!Posz_sum !count_in_sum cardsT -PoszD addnn -mul2n.
Qed.

(* ... and the squared l2 norm counts the pairs that share a cell. *)
Lemma l2_squared_apart : l2_squared f g = Posz (\sum_i \sum_j ((f i == f j) + (g i == g j))).
Proof.
rewrite (@l2_squared_pairs _ _ setT); last by move=> i; rewrite inE.
rewrite [X in (2 * X)%N]big1 ?muln0 ?subr0; last first.
  by move=> i _; apply: big1 => j _; rewrite (negbTE (apart i j)).
congr Posz; apply: eq_big => [i|i _]; first by rewrite inE.
by apply: eq_bigl => j; rewrite inE.
Qed.
End NothingCancels.

(* The blocks of the example: one feature each (Some b), published at its leaves, and one further
   feature (None) that is not published. *)
Definition own_block (B V : finType) (f : option B) := f.
Definition leaf_or_nothing (B V : finType) (f : option B) (v : V) : option V :=
  if f is Some _ then Some v else None.
(* The table shows all leaves of all features. *)
Definition all_leaves (F V : finType) (f : F) (v : V) := v.

(* ATTAINED. For every q >= 1 blocks there are two datasets of q + 1 records, an exchange apart, whose
   full tables differ by exactly 2(q + 1) in l1 and exactly q^2 + q + 2 in squared l2. *)
Theorem exchange_norms_attained (B V : finType) (v0 v1 : V) (q := #|B|) : v0 != v1 -> (0 < q)%N ->
  exists X Y : dataset (record (option_finType B) V) q.+1,
    [/\ adjacent (@own_block B V) (@leaf_or_nothing B V) X Y,
        #|touched (@own_block B V) (@leaf_or_nothing B V) (@all_leaves _ V) X| = q,
        l1 (cells (@all_leaves _ V) X) (cells (@all_leaves _ V) Y) = Posz (2 * (q + 1))
      & l2_squared (cells (@all_leaves _ V) X) (cells (@all_leaves _ V) Y) = Posz (q ^ 2 + q + 2)].
Proof.
move=> v01 q0; set block := @own_block B V; set node := @leaf_or_nothing B V.
set label := @all_leaves (option_finType B) V.
(* the person goes from v0 to v1 in every block; everybody else has v1 everywhere *)
pose x : record (option_finType B) V := [ffun=> v0].
pose y : record (option_finType B) V := [ffun f => if f is Some _ then v1 else v0].
pose k : record (option_finType B) V := [ffun=> v1].
pose X : dataset (record (option_finType B) V) q.+1 := [ffun i => if i == ord0 then x else k].
pose c : {ffun option_finType B -> 'I_q.+1} :=
  [ffun b => if b is Some b' then lift ord0 (enum_rank b') else ord0].
have X0 : X ord0 = x by rewrite ffunE eqxx.
have XS i : X (lift ord0 i) = k by rewrite ffunE.
have cE b : c (Some b) = lift ord0 (enum_rank b) by rewrite ffunE.
have mv b : moves node x y (Some b).
  by rewrite /moves /node /= !ffunE; apply: contraNneq v01 => -[->].
have hc : carriers (tuple_in block node) X ord0 y c.
  apply/carriersP=> -[b|]; rewrite X0 => d.
    by apply/eqP/tuple_inP=> f; rewrite /block /own_block => ->; rewrite cE XS !ffunE.
  by move: d; rewrite inE => /negP; case; apply/tuple_inP=> f; rewrite /block /own_block => ->.
have hy : inhabited (tuple_in block node) X y by apply: carriers_inhabited hc.
pose Y := exchange block node X ord0 y c.
have Y0 : Y ord0 = y by apply: exchange_person.
have YS i b : Y (lift ord0 i) (Some b) = if enum_rank b == i then v0 else v1.
  rewrite /Y exchange_other // X0 mv /block /own_block cE (inj_eq lift_inj) XS !ffunE.
  by case: ifP.
have YU i : Y (lift ord0 i) None = v1.
  by rewrite /Y exchange_other // /moves /node /= XS ffunE.
have cellsE (Z : dataset (record (option_finType B) V) q.+1) i : cells label Z i = Z i.
  by apply/ffunP=> f; rewrite /cells ffunE.
have /card_gt0P[b0 _] := q0.
have Yinj : injective Y.
  move=> i j; case: (unliftP ord0 i) => [i' ->|->]; case: (unliftP ord0 j) => [j' ->|->] //.
  - move=> /ffunP/(_ (Some (enum_val i'))); rewrite !YS enum_valK eqxx.
    by case: eqP => [->//|_ /eqP]; rewrite (negbTE v01).
  - by move=> /ffunP/(_ None); rewrite Y0 YU !ffunE => /eqP; rewrite eq_sym (negbTE v01).
  - by move=> /ffunP/(_ None); rewrite Y0 YU !ffunE => /eqP; rewrite (negbTE v01).
have apart i j : cells label X i != cells label Y j.
  rewrite !cellsE; apply/eqP.
  case: (unliftP ord0 i) => [i' ->|->]; case: (unliftP ord0 j) => [j' ->|->].
  - move=> /ffunP/(_ (Some (enum_val j'))); rewrite XS YS enum_valK eqxx ffunE => /eqP.
    by rewrite eq_sym (negbTE v01).
  - by move=> /ffunP/(_ None); rewrite XS Y0 !ffunE => /eqP; rewrite eq_sym (negbTE v01).
  - by move=> /ffunP/(_ None); rewrite X0 YU !ffunE => /eqP; rewrite (negbTE v01).
  - by move=> /ffunP/(_ (Some b0)); rewrite X0 Y0 !ffunE => /eqP; rewrite (negbTE v01).
exists X, Y; split.
- by apply/orP; left; apply/arisesP; exists ord0, y, c.
- have -> : touched block node label X = [set Some b | b in B].
    apply/setP=> -[b|].
      rewrite imset_f //; apply/touchedP; exists (Some b), ord0, (lift ord0 (enum_rank b)).
      rewrite X0 XS /node /label /all_leaves /= !ffunE; split=> //; last exact/eqP.
      by case; apply/eqP.
    apply/idP/idP; first by case/touchedP=> -[f|] [i [j [e h _]]] //; case: h.
    by case/imsetP=> b.
  by rewrite card_imset ?cardE //; [rewrite -cardE|move=> b b' []].
- by rewrite (l1_apart apart) card_ord addn1.
rewrite (l2_squared_apart apart); congr Posz.
have xk : (x == k) = false by apply/eqP=> /ffunP/(_ None)/eqP; rewrite !ffunE (negbTE v01).
transitivity (\sum_(i < q.+1) \sum_(j < q.+1) (X i == X j)
              + \sum_(i < q.+1) \sum_(j < q.+1) (Y i == Y j))%N.
  by rewrite -big_split; apply: eq_bigr => i _; rewrite -big_split; apply: eq_bigr => j _; rewrite !cellsE.
have -> : (\sum_(i < q.+1) \sum_(j < q.+1) (Y i == Y j) = q.+1)%N.
  rewrite -[RHS]card_ord -sum1_card; apply: eq_bigr => i _.
  rewrite (bigD1 i) //= eqxx big1 ?addn0 // => j ji; by rewrite (inj_eq Yinj) eq_sym (negbTE ji).
rewrite big_ord_recl big_ord_recl X0 eqxx big1 => [|j _]; last by rewrite XS xk.
rewrite (eq_bigr (fun=> q)); last first.
  move=> i _; rewrite XS big_ord_recl X0 eq_sym xk add0n (eq_bigr (fun=> 1%N)).
    by rewrite sum1_card card_ord.
  by move=> j _; rewrite XS eqxx.
rewrite sum_nat_const card_ord -mulnn; lia.
Qed.
