(* Records with features, published in disjoint blocks at some depth.

   A record has a leaf of every feature. A feature is a chain of depths (nation, state, county); what
   is published of a leaf is its node at the published depth. A block is a set of features that are
   published jointly; no feature lies in two blocks. An unpublished feature has a constant node. *)
From mathcomp Require Import all_ssreflect fingroup perm.
Require Import Datasets Reach SemiAdjacency.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Features.
(* Features F, blocks B, leaves V, nodes N. Every feature f lies in the one block [block f]; the
   published node of leaf v of feature f is [node f v]. One type of leaves serves all features. *)
Variables (F B V N : finType) (block : F -> B) (node : F -> V -> N).

Definition record : finType := [finType of {ffun F -> V}].
Implicit Types (x y r : record) (b : B) (f : F).

(* The published value of a record in block b: the tuple of its nodes there. *)
Definition tuple_in (r : record) (b : B) : {ffun F -> option N} :=
  [ffun f => if block f == b then Some (node f (r f)) else None].

Lemma tuple_inP x y b :
  reflect (forall f, block f = b -> node f (x f) = node f (y f)) (tuple_in x b == tuple_in y b).
Proof.
apply: (iffP eqP) => [h f e|h].
  by have /ffunP/(_ f) := h; rewrite !ffunE e eqxx => -[].
by apply/ffunP=> f; rewrite !ffunE; case: eqP => // /h ->.
Qed.

(* A feature moves between x and y if its published node differs. *)
Definition moves x y f := node f (x f) != node f (y f).

Lemma moves_differ x y f : moves x y f -> block f \in differ tuple_in x y.
Proof. by rewrite inE; apply: contra => /tuple_inP/(_ f erefl) ->. Qed.

(* BLOCKS OF FEATURES ARE INDEPENDENT. So a(t) <= q + 1, and a(t) exactly, hold for flat, joint and
   nested blocks alike. *)
Theorem blocks_of_features_independent : independent tuple_in.
Proof.
move=> choice; exists [ffun f => choice (block f) f]; apply/forallP=> b.
by apply/tuple_inP=> f e; rewrite ffunE e.
Qed.

(* a(t) FOR JOINT AND NESTED BLOCKS. q counts the blocks with at least two inhabited tuples. Then
   a(t) <= q + 1, and with q >= 1 equality holds if and only if the smallest positive totals of these
   blocks sum to at most n - 1. *)
Theorem semi_adjacency_of_features n (X : dataset record n) (q := #|active tuple_in X|) :
  semi_adjacency tuple_in X <= q + 1 /\
  (0 < q -> (semi_adjacency tuple_in X == q + 1) =
            (\sum_(b in active tuple_in X) rarest tuple_in X b <= n - 1)).
Proof.
split; first exact: semi_adjacency_bound blocks_of_features_independent _.
exact: semi_adjacency_exact blocks_of_features_independent _.
Qed.

End Features.
