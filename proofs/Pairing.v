(* Rule "residuals". Pairing: the records of a move can be paired along one published block, so a move of
   a records costs at most a times the worst single move that keeps this block. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Tables.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Pairing.
Variables (C B W : finType) (published : C -> B -> W) (n : nat) (K : realDomainType).
Implicit Types (X Y : dataset C n) (x y : C).

(* One record goes from cell x to cell y. *)
Definition single_move x y (c : C) : int := (y == c)%:Z - (x == c)%:Z.

(* Any length of tables with the triangle inequality, for instance the root of a cost. *)
Variable N : (C -> int) -> K.
Hypothesis same_length : forall f g, f =1 g -> N f = N g.
Hypothesis triangle : forall f g, N (fun c => f c + g c) <= N f + N g.
Hypothesis zero_length : N (fun=> 0) = 0.

(* A sum of single moves is at most as long as their number times the longest. *)
Lemma moves_length (moves : seq (C * C)) (T : K) :
  (forall z, z \in moves -> N (single_move z.1 z.2) <= T) ->
  N (fun c => \sum_(z <- moves) single_move z.1 z.2 c) <= T *+ size moves.
Proof.
elim: moves => [|z s IH] h.
  by rewrite (same_length (g := fun=> 0)) ?zero_length // => c; rewrite big_nil.
rewrite (same_length (g := fun c => single_move z.1 z.2 c + \sum_(w <- s) single_move w.1 w.2 c)).
  apply: le_trans (triangle _ _) _; rewrite /= mulrS; apply: ler_add; first by apply: h; rewrite mem_head.
  by apply: IH => w ws; apply: h; rewrite inE ws orbT.
by move=> c; rewrite big_cons.
Qed.

(* PAIRING. X and Y have the same totals and differ in at most a records. If every single move that keeps
   the published value in block b has length at most T, the difference of the tables has length at most
   a T. *)
Theorem pairing X Y (b : B) (T : K) (a : nat) : same_totals published X Y -> (distance X Y <= a)%N ->
  0 <= T -> (forall x y, published x b = published y b -> N (single_move x y) <= T) ->
  N (fun c => table Y c - table X c) <= T *+ a.
Proof.
move=> same near T0 hT; pose D := changed X Y.
case: (set_0Vmem D) => [D0|[d0 _]].
  have e : X = Y by apply: distance0; rewrite /distance -/D D0 cards0.
  rewrite (same_length (g := fun=> 0)) ?zero_length ?mulrn_wge0 // => c.
  by rewrite e subrr.
(* the records that change, and a reordering in which published values of Y are those of X *)
have pv : perm_eq [seq published (X i) b | i <- enum D] [seq published (Y i) b | i <- enum D].
  have countE (Z : dataset C n) w : count_mem w [seq published (Z i) b | i <- enum D] =
      #|[set i in D | published (Z i) b == w]|.
    rewrite count_map -sum1_count big_enum_cond -sum1_card.
    by apply: eq_bigl => i; rewrite !inE.
  apply/allP=> w _ /=; rewrite !countE; apply/eqP.
  exact: (same_totals_on b w same (fintype.subxx _)).
have [ix pix eX] := perm_iotaP (published (Y d0) b) pv; rewrite size_map in pix.
pose partner := [seq nth d0 (enum D) j | j <- ix].
have pp : perm_eq partner (enum D).
  rewrite -[X in perm_eq _ X](mkseq_nth d0) /mkseq; exact: perm_map.
have sp : size partner = size (enum D) by apply: perm_size.
have paired : [seq published (X i) b | i <- enum D] = [seq published (Y i) b | i <- partner].
  rewrite eX -map_comp; apply/eq_in_map => j; rewrite (perm_mem pix) mem_iota add0n => lt.
  by rewrite (nth_map d0).
pose moves := zip [seq X i | i <- enum D] [seq Y i | i <- partner].
have sizes : size [seq X i | i <- enum D] = size [seq Y i | i <- partner].
  by rewrite 2!size_map sp.
have sm : size moves = #|D| by rewrite size_zip -sizes minnn size_map cardE.
rewrite (same_length (g := fun c => \sum_(z <- moves) single_move z.1 z.2 c)); last first.
  move=> c; rewrite (@table_change _ _ D); last by move=> i; rewrite inE negbK => /eqP.
  have sumE (Z : dataset C n) : (count_in D Z c)%:Z = \sum_(i <- enum D) (Z i == c)%:Z.
    by rewrite /count_in Posz_sum big_enum.
  rewrite !sumE -(perm_big _ pp) /=.
  have splitE (u v : seq C) : size u = size v -> \sum_(z <- zip u v) single_move z.1 z.2 c =
      \sum_(y <- v) (y == c)%:Z - \sum_(x <- u) (x == c)%:Z.
    elim: u v => [|x u IH] [|y v] //=; first by rewrite !big_nil subr0.
    by case=> /IH e; rewrite !big_cons e /single_move opprD addrACA.
  by rewrite splitE // !big_map.
apply: le_trans (moves_length (T := T) _) _; last by rewrite sm ler_wpmuln2l.
move=> [x y] /(nthP (X d0, X d0))[k]; rewrite size_zip -sizes minnn size_map => lt.
rewrite nth_zip // => -[<- <-] /=; apply: hT.
rewrite !(nth_map d0) ?sp //.
have := congr1 (fun s => nth (published (X d0) b) s k) paired.
by rewrite !(nth_map d0) ?sp.
Qed.

End Pairing.
