(* The exchange norms without an unpublished part are attained for two and three blocks: 6 and 12. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach Features Exchange Tables ExchangeNorms ExchangeNormsAttained.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.

(* Every feature is a block of its own, published at its leaves, and the table shows all leaves. *)
Definition alone (F : finType) (f : F) := f.
Definition leaf (F V : finType) (f : F) (v : V) := v.

(* An exchange written down with numbers. Record i has leaf [before i f] of feature f; record 0 becomes y;
   the carrier of feature f is record number [carrier f]. *)
Section Example.
Variables (F V : finType) (features : seq F) (n : nat).
Variables (before : nat -> F -> V) (y : F -> V) (carrier : F -> nat).
Hypothesis all_features : forall f, f \in features.

Definition after i f :=
  if i == 0 then y f else if (before 0 f != y f) && (carrier f == i) then before 0 f else before i f.
Definition same_cell (u w : F -> V) := all (fun f => u f == w f) features.

(* What has to be computed: carriers have y's leaf, and no cell before is a cell after. *)
Definition carriers_right :=
  all (fun f => (before 0 f != y f) ==> (before (carrier f) f == y f) && (carrier f < n.+1)) features.
Definition cells_apart :=
  all (fun i => all (fun j => ~~ same_cell (before i) (after j)) (iota 0 n.+1)) (iota 0 n.+1).
Definition pairs_sharing (u : nat -> F -> V) :=
  sumn [seq sumn [seq nat_of_bool (same_cell (u i) (u j)) | j <- iota 0 n.+1] | i <- iota 0 n.+1].

Lemma sum_iota (h : nat -> nat) : \sum_(i < n.+1) h i = sumn [seq h i | i <- iota 0 n.+1].
Proof. by rewrite sumnE big_map -(big_mkord xpredT h) /index_iota subn0. Qed.

Lemma same_cellE (u w : record F V) : (u == w) = same_cell u w.
Proof.
apply/eqP/allP => [-> f _|h]; first exact: eqxx.
by apply/ffunP=> f; apply/eqP; apply: h.
Qed.

Lemma example : carriers_right -> cells_apart ->
  exists X Y : dataset (record F V) n.+1, adjacent (@alone F) (@leaf F V) X Y /\
    l2_squared (cells (@leaf F V) X) (cells (@leaf F V) Y)
      = Posz (pairs_sharing before + pairs_sharing after).
Proof.
move=> /allP right /allP apart.
pose X : dataset (record F V) n.+1 := [ffun i : 'I_n.+1 => [ffun f => before i f]].
pose Y : dataset (record F V) n.+1 := [ffun i : 'I_n.+1 => [ffun f => after i f]].
have XE i f : X i f = before i f by rewrite !ffunE.
have YE i f : Y i f = after i f by rewrite !ffunE.
pose c : {ffun F -> 'I_n.+1} := [ffun f => inord (carrier f)].
pose target : record F V := [ffun f => y f].
have mv f : moves (@leaf F V) (X ord0) target f = (before 0 f != y f).
  by rewrite /moves /leaf XE ffunE.
have hc : carriers (tuple_in (@alone F) (@leaf F V)) X ord0 target c.
  apply/carriersP=> b d; apply/eqP/tuple_inP=> f; rewrite /alone => e; rewrite e.
  have nb : before 0 b != y b.
    rewrite -mv; move: d; rewrite inE; apply: contraNT => /negPn/eqP same.
    by apply/tuple_inP=> g; rewrite /alone => ->.
  have := right b (all_features b); rewrite nb /= => /andP[/eqP eb lt].
  by rewrite /leaf XE [c b]ffunE inordK // eb ffunE.
have eY : Y = exchange (@alone F) (@leaf F V) X ord0 target c.
  apply/ffunP=> i; apply/ffunP=> f; rewrite YE /after.
  case: (eqVneq i ord0) => [->|ni]; first by rewrite exchange_person ffunE.
  have -> : (i == 0 :> nat) = false by apply/negbTE; apply: contraNneq ni => e; apply/eqP/val_inj.
  rewrite exchange_other // mv /alone; case nb : (before 0 f != y f) => /=; last by rewrite XE.
  have := right f (all_features f); rewrite nb /= => /andP[_ lt].
  have -> : (c f == i) = (carrier f == i :> nat) by rewrite /c ffunE -val_eqE /= inordK.
  by case: ifP => _; rewrite XE.
have cellsE (Z : dataset (record F V) n.+1) i : cells (@leaf F V) Z i = Z i.
  by apply/ffunP=> f; rewrite /cells ffunE.
have same (u w : nat -> F -> V) (Z Z' : dataset (record F V) n.+1) (i j : 'I_n.+1) :
    (forall i f, Z i f = u i f) -> (forall i f, Z' i f = w i f) ->
    (Z i == Z' j) = same_cell (u i) (w j).
  by move=> hZ hZ'; rewrite same_cellE; apply: eq_all => f; rewrite hZ hZ'.
exists X, Y; split.
  apply/orP; left; apply/arisesP; exists ord0, target, c; split=> //.
  exact: carriers_inhabited hc.
rewrite l2_squared_apart => [|i j]; last first.
  rewrite !cellsE (same before after) //.
  have := apart i; rewrite mem_iota ltn_ord => /(_ isT)/allP/(_ j).
  by rewrite mem_iota ltn_ord => /(_ isT).
congr Posz; rewrite /pairs_sharing -!sum_iota -big_split; apply: eq_bigr => i _.
rewrite -!sum_iota -big_split; apply: eq_bigr => j _.
by rewrite !cellsE (same before before) // (same after after).
Qed.
End Example.

(* TWO BLOCKS ATTAIN 6. With three levels each, the records 00, 11, 22 become 12, 01, 20. *)
Theorem two_blocks_attain_6 : exists X Y : dataset (record bool_finType [finType of option bool]) 3,
  adjacent (@alone _) (@leaf _ _) X Y /\
  l2_squared (cells (@leaf _ _) X) (cells (@leaf _ _) Y) = Posz 6.
Proof.
pose level i : option bool := if i is 0 then None else Some (i == 1).
apply: (@example bool_finType [finType of option bool] [:: false; true] 2
  (fun i _ => level i) (fun f => level (if f then 1 else 2)) (fun f => if f then 1 else 2)).
- by case.
- by [].
- by [].
Qed.

(* THREE BLOCKS ATTAIN 12. With two levels each, the records 000, 110, 110, 011 become 111, 010, 100,
   010. *)
Theorem three_blocks_attain_12 :
  exists X Y : dataset (record [finType of option bool] bool_finType) 4,
  adjacent (@alone _) (@leaf _ _) X Y /\
  l2_squared (cells (@leaf _ _) X) (cells (@leaf _ _) Y) = Posz 12.
Proof.
pose place (f : option bool) := if f is Some b then nat_of_bool b else 2.
pose leaves := [:: [:: false; false; false]; [:: true; true; false]; [:: true; true; false];
                   [:: false; true; true]].
apply: (@example [finType of option bool] bool_finType [:: Some false; Some true; None] 3
  (fun i f => nth false (nth [::] leaves i) (place f)) (fun=> true) (fun f => (place f).+1)).
- by case=> [[]|].
- by [].
- by [].
Qed.
