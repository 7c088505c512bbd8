(* False variants of the theorems, each refuted on a small example: a condition dropped, or a bound made
   smaller. They show that the theorems say something, and that the conditions are needed. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach LiteralReading SmallSpaces.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

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
