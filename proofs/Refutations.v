(* False variants of the theorems, each refuted on a small example: a condition dropped, or a bound made
   smaller. They show that the theorems say something, and that the conditions are needed. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach LiteralReading Tables BallNorms Features Exchange GroupSums.
Require Import GroupSumsExchange ExchangeNormsPublishedAttained LinkedReach SmallSpaces.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* ---- sums ---- *)

(* WHO ANSWERED MUST BE PUBLIC. Outcomes in {10, ..., 12} or missing, two records: if the number of
   records with an outcome is not exact, a sum moves by 24, and a(u - l) = 4 is false. *)
Theorem sums_false_if_answers_are_private : exists X Y : 'I_2 -> option ('I_1 * int),
  [/\ in_range 10 12 X, in_range 10 12 Y, #|[set i | X i != Y i]| <= 2
    & (\sum_g `|group_sum X g - group_sum Y g| = 24)%R].
Proof.
exists (fun=> Some (ord0, Posz 12)), (fun=> None); split=> //.
- by move=> i z [<-].
- by apply: leq_trans (max_card _) _; rewrite card_ord.
rewrite big_ord_recl big_ord0 /group_sum [X in (_ - X)%R]big_pred0 //.
by rewrite big_mkcond !big_ord_recl big_ord0; vm_compute.
Qed.

Definition sex_and_age := bool_finType.   (* true: sex, false: age *)
Definition sex_or_band (f : sex_and_age) (v : 'I_10) : bool := if f then v == 0 :> nat else 4 < v.
Definition sex_of (tuple : {ffun sex_and_age -> option bool}) : option bool := tuple true.
Definition age_of (r : record sex_and_age [finType of 'I_10]) : int := Posz (r false).

(* OUTCOMES MUST NOT BE PUBLISHED, NOT EVEN COARSELY. Exact totals by sex and by age band (0-4, 5-9), sums
   of age by sex: whoever hands over the band changes age too, and one exchange moves the sums by 250 in
   squared l2, more than 2(u - l)^2 = 162. *)
Theorem exchange_sums_false_for_coarsely_published_outcomes
    (sums := fun (Z : dataset (record sex_and_age [finType of 'I_10]) 3) =>
       group_sum (contribution (@alone _) sex_or_band true sex_of age_of Z)) :
  exists X Y : dataset (record sex_and_age [finType of 'I_10]) 3,
    adjacent (@alone _) (sex_or_band : _ -> _ -> bool_finType) X Y /\
    (\sum_g (sums X g - sums Y g) ^+ 2 = 250)%R.
Proof.
(* sex 0 or 1 and age of the records before, and of the person after *)
pose sex i := nth 0 [:: 0; 1; 1] i; pose age i := nth 0 [:: 0; 9; 9] i.
pose sex' i := nth 0 [:: 1; 1; 0] i; pose age' i := nth 0 [:: 5; 0; 9] i.
pose made (s a : nat -> nat) : dataset (record sex_and_age [finType of 'I_10]) 3 :=
  [ffun i : 'I_3 => [ffun f : bool => inord (if f then s i else a i)]].
pose X := made sex age; pose Y := made sex' age'.
have val_made (s a : nat -> nat) (i : 'I_3) (f : bool) : s i < 10 -> a i < 10 ->
    made s a i f = (if f then s i else a i) :> nat.
  by move=> hs ha; rewrite !ffunE inordK //; case: f.
have XE (i : 'I_3) (f : bool) : X i f = (if f then sex i else age i) :> nat.
  by apply: val_made; case: i => [[|[|[|//]]] h].
have YE (i : 'I_3) (f : bool) : Y i f = (if f then sex' i else age' i) :> nat.
  by apply: val_made; case: i => [[|[|[|//]]] h].
pose c : {ffun sex_and_age -> 'I_3} := [ffun b => if b then inord 2 else inord 1].
have cE b : c b = (if b then 2 else 1) :> nat by rewrite ffunE; case: b; rewrite inordK.
have node_of (Z : dataset (record sex_and_age [finType of 'I_10]) 3) (s a : nat -> nat) (i : 'I_3) (f : bool) :
    (forall (i : 'I_3) (f : bool), Z i f = (if f then s i else a i) :> nat) ->
    sex_or_band f (Z i f) = if f then s i == 0 else 4 < a i.
  by move=> hZ; rewrite /sex_or_band hZ; case: f.
have hc : carriers (tuple_in (@alone _) (sex_or_band : _ -> _ -> bool_finType)) X ord0 (Y ord0) c.
  apply/carriersP=> b _; apply/eqP/tuple_inP=> f; rewrite /alone => ->.
  by rewrite (node_of X sex age) // (node_of Y sex' age') // cE; case: b.
exists X, Y; split.
  apply/orP; left; apply/arisesP; exists ord0, (Y ord0), c; split=> //.
    exact: carriers_inhabited hc.
  apply/ffunP=> i; case: (eqVneq i ord0) => [->|ni]; first by rewrite exchange_person.
  apply/ffunP=> f; apply: val_inj; rewrite /= exchange_other // /moves.
  rewrite (node_of X sex age) // (node_of Y sex' age') // /alone -val_eqE /= cE YE.
  case: i ni => [[|[|[|//]]] h] ni; case: f => //=; rewrite XE //.
have sumE (Z : dataset (record sex_and_age [finType of 'I_10]) 3) (s a : nat -> nat) (g : bool) :
    (forall (i : 'I_3) (f : bool), Z i f = (if f then s i else a i) :> nat) ->
    sums Z g = (\sum_(i < 3) (if (s i == 0%N) == g then Posz (a i) else 0))%R.
  move=> hZ; rewrite /sums group_sumE; apply: eq_bigr => i _.
  by rewrite /sex_of ffunE eqxx (node_of Z s a) // (inj_eq (@Some_inj _)) /age_of hZ.
rewrite big_bool /= !(sumE X sex age) // !(sumE Y sex' age') //.
by rewrite !big_ord_recl !big_ord0; vm_compute.
Qed.

(* ---- parity ---- *)

(* PARITY NEEDS TWO VALUES. The three-cycle of a 3 x 3 table has zero margins and positive part 3. *)
Theorem parity_false_for_three_by_three : exists m : 'I_3 * 'I_3 -> int,
  [/\ forall r, (\sum_j m (r, j) = 0)%R, forall j, (\sum_r m (r, j) = 0)%R & odd (positive_part m)].
Proof.
pose m (c : 'I_3 * 'I_3) : int :=
  (Posz (c.1 == c.2) - Posz ((c.1 + 1) %% 3 == c.2 :> nat))%R.
exists m; split.
- by case=> [[|[|[|//]]] h]; rewrite !big_ord_recl big_ord0; vm_compute.
- by case=> [[|[|[|//]]] h]; rewrite !big_ord_recl big_ord0; vm_compute.
rewrite /positive_part (eq_bigr (fun c => positive m (c.1, c.2))); last by case.
by rewrite -(pair_bigA _ (fun r j => positive m (r, j))) !big_ord_recl !big_ord0; vm_compute.
Qed.

(* ---- linked files ---- *)

(* SOMEBODY HAS TO MAKE ROOM. Two units with exactly one member each, and nothing else published: moving
   one member changes two, so 1 + (number of blocks with an own feature) members do not suffice. *)
Theorem room_maker_needed (F := [finType of 'I_1]) (V := bool_finType) (N := unit_finType)
    (H := bool_finType) (P := unit_finType) (B := unit_finType)
    (block := fun _ : F => tt : B) (node := fun (_ : F) (_ : V) => tt : N)
    (place := fun _ : H => tt : P)
    (X : dataset (member F V H) 2 := [ffun i => ([ffun=> false], i == ord0)])
    (target : member F V H := ([ffun=> false], false)) :
  [/\ sizes_allowed 1 (fun=> 1) X, inhabited (published block node place tt) X target,
      #|own_blocks block node| = 0
    & forall Y : dataset (member F V H) 2, sizes_allowed 1 (fun=> 1) Y -> Y ord0 = target ->
        1 < distance X Y].
Proof.
split.
- apply/forallP=> h; rewrite /unit_size -sum1_card big_mkcond !big_ord_recl big_ord0.
  by rewrite !inE !ffunE; case: h.
- apply/inhabitedP=> -[]; exists ord0; apply/eqP/publishedP.
  by rewrite ffunE.
- apply/eqP; rewrite cards_eq0; apply/eqP/setP=> b; rewrite !inE.
  by apply/existsP=> -[u /existsP[v /existsP[w]]]; rewrite eqxx andbF.
move=> Y /forallP sizes Y0; rewrite ltnNge; apply/negP=> near.
have c0 : ord0 \in changed X Y by rewrite inE Y0 ffunE xpair_eqE /= andbF.
have Y1 : Y ord_max = X ord_max.
  apply/eqP; apply: contraT => ne; have c1 : ord_max \in changed X Y by rewrite inE eq_sym.
  by have := card_le1_eqP near _ _ c0 c1.
have := sizes true; rewrite /unit_size => /andP[+ _]; apply/negP; rewrite -leqNgt leqn0 cards_eq0.
apply/eqP/setP=> i; rewrite !inE; case: (unliftP ord0 i) => [j ->|->]; last by rewrite Y0.
have -> : lift ord0 j = ord_max by apply: val_inj; case: j => [[]].
by rewrite Y1 ffunE.
Qed.

(* ---- lists of small types ---- *)
Definition bits := [:: false; true].
Definition pairs := [seq (a, b) | a <- bits, b <- bits].
Definition triples := [seq (c, b) | c <- pairs, b <- bits].
Definition quadruples := [seq (c, b) | c <- triples, b <- bits].
Definition thirds := [:: None; Some false; Some true].

Lemma all_bits (b : bool) : b \in bits. Proof. by case: b. Qed.
Lemma all_pairs (r : bool * bool) : r \in pairs. Proof. by case: r => [[] []]. Qed.
Lemma all_triples (r : bool * bool * bool) : r \in triples. Proof. by case: r => [[[] []] []]. Qed.
Lemma all_quadruples (r : bool * bool * bool * bool) : r \in quadruples.
Proof. by case: r => [[[[] []] []] []]. Qed.
Lemma all_thirds (b : option bool) : b \in thirds. Proof. by case: b => [[]|]. Qed.

(* ---- records and margins of the examples ---- *)
Definition record2 := [finType of bool * bool].
Definition record3 := [finType of bool * bool * bool].
Definition record4 := [finType of bool * bool * bool * bool].
Definition blocks2 := [finType of bool].
Definition blocks3 := [finType of option bool].

(* Two features A and B, both totals exact. *)
Definition two_margins (r : record2) (b : blocks2) : bool := if b then r.1 else r.2.
(* Three features, all three totals exact. *)
Definition three_margins (r : record3) (b : blocks3) : bool :=
  let: (x, y, z) := r in if b is Some c then (if c then x else y) else z.
(* Margins AB and BC of three features. *)
Definition margins_AB_BC (r : record3) (b : blocks2) : record2 :=
  let: (x, y, z) := r in if b then (x, y) else (y, z).
(* Margins AB, BC and AC of three features: a cycle. *)
Definition margins_AB_BC_AC (r : record3) (b : blocks3) : record2 :=
  let: (x, y, z) := r in if b is Some c then (if c then (x, y) else (y, z)) else (x, z).
(* Margins AB, BC and CD of four features: a chain. *)
Definition margins_AB_BC_CD (r : record4) (b : blocks3) : record2 :=
  let: (x, y, z, u) := r in if b is Some c then (if c then (x, y) else (y, z)) else (z, u).
(* A 4 x 4 table in which only the cells (i, i) and (i, i + 1) are possible: a record is its row i and
   a bit that says whether the column is i or i + 1. *)
Definition next (i : record2) : record2 := (i.1 (+) i.2, ~~ i.2).
Definition cyclic_zeros (r : record3) (b : blocks2) : record2 :=
  if b then r.1 else if r.2 then next r.1 else r.1.

Notation f := false. Notation t := true.

(* TWO READINGS. For margins (2,1) and (2,1) the worst case is 3; the literal reading is 2, not 1. *)
Theorem readings_differ (X := dataset_of 3 (f, f) [:: (f, f); (f, t); (t, f)]) :
  [/\ semi_adjacency two_margins X = 3, literal_suffices two_margins X 2
    & ~~ literal_suffices two_margins X 1].
Proof.
split.
- by apply: (@listing_decides_number record2 blocks2 _ _ _ pairs bits _ all_pairs all_bits); vm_compute.
- by rewrite (@listing_decides_literal record2 blocks2 _ _ _ pairs bits _ all_pairs all_bits); vm_compute.
- by rewrite (@listing_decides_literal record2 blocks2 _ _ _ pairs bits _ all_pairs all_bits); vm_compute.
Qed.

(* a(t) IS NOT ALWAYS q + 1. Margins (2,2) and (2,2) need 2 records, not 3; three binary features with
   margins (1,2) need 3, not 4. *)
Theorem fewer_than_q_plus_1 :
  semi_adjacency two_margins (dataset_of 4 (f, f) [:: (f, f); (f, t); (t, f); (t, t)]) = 2 /\
  semi_adjacency three_margins (dataset_of 3 (f, f, f) [:: (t, f, f); (f, t, f); (f, f, t)]) = 3.
Proof.
split.
- by apply: (@listing_decides_number record2 blocks2 _ _ _ pairs bits _ all_pairs all_bits); vm_compute.
- by apply: (@listing_decides_number record3 blocks3 _ _ _ triples thirds _ all_triples all_thirds); vm_compute.
Qed.

(* REACH NEEDS INDEPENDENT BLOCKS. With structural zeros on a cycle of length 4, two blocks need 4
   records: a(t) <= q + 1 is false. *)
Theorem reach_false_with_structural_zeros
    (X := dataset_of 4 (f, f, f) [:: (f, f, f); (f, t, f); (t, f, f); (t, t, f)]) :
  #|active cyclic_zeros X| + 1 < semi_adjacency cyclic_zeros X.
Proof.
apply: (@leq_ltn_trans 3).
  by have : #|active cyclic_zeros X| <= #|blocks2| := max_card _; rewrite card_bool addn1 !ltnS.
apply: (@listing_refutes record3 blocks2 _ _ _ triples bits _ all_triples all_bits _ _ 0 (f, f, t));
  by vm_compute.
Qed.

(* THE NUMBER OF CLIQUES ALONE IS NOT ENOUGH. AB, BC needs more than 2 records and AB, BC, CD more than 3:
   the bound "number of cliques + 1" is attained. *)
Theorem cliques_alone_false :
  2 < semi_adjacency margins_AB_BC (dataset_of 3 (f, f, f) [:: (f, f, f); (f, f, t); (t, f, f)]) /\
  3 < semi_adjacency margins_AB_BC_CD
    (dataset_of 4 (f, f, f, f) [:: (f, f, f, f); (f, f, f, t); (f, t, f, f); (t, t, t, f)]).
Proof.
split.
- apply: (@listing_refutes record3 blocks2 _ _ _ triples bits _ all_triples all_bits _ _ 0 (t, f, t));
    by vm_compute.
- apply: (@listing_refutes record4 blocks3 _ _ _ quadruples thirds _ all_quadruples all_thirds _ _
            0 (t, t, f, t)); by vm_compute.
Qed.

(* THE TREE IS NEEDED. The margins AB, BC and AC form a cycle: some totals need 5 records, more than the
   number of cliques + 1. *)
Theorem decomposable_bound_false_for_a_cycle :
  4 < semi_adjacency margins_AB_BC_AC
    (dataset_of 5 (f, f, f) [:: (f, f, f); (f, f, t); (f, t, f); (t, f, f); (t, t, t)]).
Proof.
apply: (@listing_refutes record3 blocks3 _ _ _ triples thirds _ all_triples all_thirds _ _ 0 (f, t, t));
  by vm_compute.
Qed.

(* THE LITERAL READING CAN EXCEED 2 for margins that overlap: AB, BC, CD with 0010, 1001, 1100 gives 3. *)
Theorem literal_bound_false_for_overlaps
    (X := dataset_of 3 (f, f, f, f) [:: (f, f, t, f); (t, f, f, t); (t, t, f, f)]) :
  ~~ literal_suffices margins_AB_BC_CD X 2.
Proof.
by rewrite (@listing_decides_literal record4 blocks3 _ _ _ quadruples thirds _ all_quadruples
              all_thirds); vm_compute.
Qed.
