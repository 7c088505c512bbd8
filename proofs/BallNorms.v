(* Rule "ball norms". Norms of the differences of two tables under the ball A_a.

   The difference m of the tables of two datasets with the same totals, at most a records apart, is an
   integer table with zero margins whose positive part sums to at most a. All bounds are about such
   tables. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Tables.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.

(* ---- the sum of squares of bounded integers ---- *)

(* The largest sum of squares of natural numbers that are at most x and sum to at most a: as many
   entries x as fit, and the rest in one entry (called g). *)
Definition packed_squares a x := a %/ x * x ^ 2 + (a %% x) ^ 2.

Lemma packed_step a x e : 0 < x -> e <= x -> e <= a ->
  e ^ 2 + packed_squares (a - e) x <= packed_squares a x.
Proof.
move=> x0 ex ea; rewrite /packed_squares; move: ea; rewrite {1 2 3}(divn_eq a x).
have := ltn_pmod a x0; move: (a %/ x) (a %% x) => q r rx ea.
case: (leqP e r) => [er|re].
  rewrite -addnBA // divnMDl // modnMDl divn_small ?modn_small ?addn0; try lia.
  by rewrite -!mulnn; nia.
case: q ea => [|q] ea; first by move: ea; rewrite mul0n add0n leqNgt re.
have -> : q.+1 * x + r - e = q * x + (x + r - e) by rewrite mulSn; lia.
rewrite divnMDl // modnMDl divn_small ?modn_small ?addn0; try lia.
by rewrite -!mulnn; nia.
Qed.

Lemma squares_le (T : Type) (s : seq T) (h : T -> nat) a x : 0 < x -> (forall c, h c <= x) ->
  \sum_(c <- s) h c <= a -> \sum_(c <- s) h c ^ 2 <= packed_squares a x.
Proof.
move=> x0 hx; elim: s a => [|c s IH] a; first by rewrite !big_nil.
rewrite !big_cons => ha; have ca : h c <= a by apply: leq_trans ha; apply: leq_addr.
apply: leq_trans (packed_step x0 (hx c) ca); rewrite leq_add2l; apply: IH.
by rewrite -(leq_add2l (h c)) subnKC.
Qed.

Lemma packed_squares_le a x : 0 < x -> packed_squares a x <= x * a.
Proof.
move=> x0; rewrite /packed_squares {3}(divn_eq a x) -!mulnn.
by have := ltn_pmod a x0; move: (a %/ x) (a %% x) => q r rx; nia.
Qed.

Section ZeroMargins.
(* The cells of the released table, the published margins K rolled up to the table, their values. *)
Variables (C K W : finType) (margin : C -> K -> W) (m : C -> int).

(* The positive and the negative part of m. *)
Definition positive c : nat := if m c is Posz k then k else 0.
Definition negative c : nat := if m c is Negz k then k.+1 else 0.
Definition positive_part := \sum_c positive c.

Lemma parts c : m c = (Posz (positive c) - Posz (negative c))%R.
Proof. by rewrite /positive /negative; case: (m c) => k; rewrite ?subr0 ?sub0r // NegzE. Qed.

Lemma one_part c : positive c = 0 \/ negative c = 0.
Proof. by rewrite /positive /negative; case: (m c) => k; [right|left]. Qed.

Lemma l2_parts : (\sum_c m c ^+ 2 = Posz (\sum_c positive c ^ 2 + \sum_c negative c ^ 2))%R.
Proof.
rewrite -big_split /= Posz_sum; apply: eq_bigr => c _.
by rewrite {1}parts; case: (one_part c) => ->; lia.
Qed.

Hypothesis zero_total : (\sum_c m c = 0)%R.
Hypothesis zero_margins : forall k w, (\sum_(c | margin c k == w) m c = 0)%R.

Lemma balanced (P : pred C) : (\sum_(c | P c) m c = 0)%R ->
  \sum_(c | P c) positive c = \sum_(c | P c) negative c.
Proof.
rewrite (eq_bigr (fun c => Posz (positive c) - Posz (negative c))%R) => [|c _]; last exact: parts.
by rewrite sumrB => /eqP; rewrite subr_eq0 -!Posz_sum => /eqP[].
Qed.

Lemma negative_part : \sum_c negative c = positive_part.
Proof. by rewrite /positive_part (balanced (P := xpredT)). Qed.

Lemma l1_parts : (\sum_c `|m c| = Posz (2 * positive_part))%R.
Proof.
rewrite (eq_bigr (fun c => Posz (positive c + negative c))); last first.
  by move=> c _; rewrite {1}parts; case: (one_part c) => ->; lia.
by rewrite -Posz_sum big_split /= negative_part addnn -mul2n.
Qed.

(* ---- the largest entry ---- *)

(* A fractional cover of the features by the margins, with weights in units of 1/s: any two different
   cells differ in margins of total weight at least s. Its total weight is rho = (sum of w)/s. *)
Variables (w : K -> nat) (s : nat).
Hypothesis cover : forall c c', c != c' -> s <= \sum_(k | margin c k != margin c' k) w k.
Let weight := \sum_k w k.

Lemma weight_of_matches c z : c != z -> \sum_(k | margin c k == margin z k) w k <= weight - s.
Proof.
move=> cz; rewrite /weight [X in _ <= X - _](bigID (fun k => margin c k == margin z k)) /=.
by move: (cover cz) => h; rewrite -addnBA // leq_addr.
Qed.

Lemma positive_entry z : weight * positive z <= (weight - s) * positive_part.
Proof.
case: (posnP (positive z)) => [->|pos]; first by rewrite muln0.
have nz : negative z = 0 by case: (one_part z) => // e; rewrite e in pos.
apply: (@leq_trans (\sum_k w k * \sum_(c | margin c k == margin z k) negative c)).
  rewrite /weight big_distrl; apply: leq_sum => k _; rewrite leq_mul2l; apply/orP; right.
  by rewrite -balanced ?zero_margins // (bigD1 z) //= leq_addr.
rewrite -negative_part big_distrr /=.
rewrite (eq_bigr (fun k => \sum_c (if margin c k == margin z k then w k else 0) * negative c)).
  rewrite exchange_big; apply: leq_sum => c _; rewrite -big_distrl /=.
  case: (eqVneq c z) => [->|cz]; first by rewrite nz muln0.
  by rewrite leq_mul2r -big_mkcond weight_of_matches ?orbT.
move=> k _; rewrite big_distrr big_mkcond; apply: eq_bigr => c _.
by case: ifP; rewrite ?mul0n.
Qed.

End ZeroMargins.

Section Bounds.
Variables (C K W : finType) (margin : C -> K -> W) (m : C -> int).
Hypothesis zero_total : (\sum_c m c = 0)%R.
Hypothesis zero_margins : forall k w, (\sum_(c | margin c k == w) m c = 0)%R.
Variable a : nat.
Hypothesis few : positive_part m <= a.

Lemma opposite_parts c : positive (fun c => - m c)%R c = negative m c /\
  negative (fun c => - m c)%R c = positive m c.
Proof. by rewrite /positive /negative; case: (m c) => [[|k]|k]. Qed.

Lemma opposite_zero (P : pred C) : (\sum_(c | P c) m c = 0 -> \sum_(c | P c) - m c = 0)%R.
Proof. by rewrite sumrN => ->; rewrite oppr0. Qed.

Lemma opposite_positive_part : positive_part (fun c => - m c)%R = positive_part m.
Proof.
rewrite -(negative_part zero_total); apply: eq_bigr => c _.
by have [] := opposite_parts c.
Qed.

(* BALL, l1: at most 2a. *)
Theorem ball_l1 : (\sum_c `|m c| <= Posz (2 * a))%R.
Proof. by rewrite l1_parts // lez_nat leq_mul2l. Qed.

(* BALL, LARGEST ENTRY. If the margins cover the features fractionally with total weight rho (weights
   w in units of 1/s, rho = (sum of w)/s), no entry exceeds a(1 - 1/rho) in absolute value. *)
Theorem ball_largest_entry (w : K -> nat) (s : nat) :
  (forall c c', c != c' -> s <= \sum_(k | margin c k != margin c' k) w k) ->
  forall z, (\sum_k w k) * `|m z| <= (\sum_k w k - s) * a.
Proof.
move=> cover z; apply: (@leq_trans ((\sum_k w k - s) * positive_part m)); last first.
  by rewrite leq_mul2l few orbT.
have -> : `|m z|%N = positive m z + negative m z.
  by rewrite /positive /negative; case: (m z) => k //=; rewrite addn0.
case: (one_part m z) => ->; rewrite ?add0n ?addn0; last exact: positive_entry.
have [<- _] := opposite_parts z; rewrite -opposite_positive_part.
apply: positive_entry cover _; first exact: opposite_zero.
by move=> k v; apply: opposite_zero.
Qed.

(* Any two different cells differ in some published margin: every feature of the table is published
   at the table's depth. *)
Hypothesis separated : forall c c', c != c' -> exists k, margin c k != margin c' k.

(* BALL, TWO ENTRIES. If every feature is published, the largest positive and the largest negative
   entry sum to at most a. *)
Theorem ball_two_entries z z' : positive m z + negative m z' <= a.
Proof.
apply: leq_trans few.
case: (posnP (negative m z')) => [->|neg].
  by rewrite addn0 /positive_part (bigD1 z) //= leq_addr.
case: (eqVneq z z') => [->|zz'].
  rewrite addnC -(negative_part zero_total).
  case: (one_part m z') => e; first by rewrite e addn0 (bigD1 z') //= leq_addr.
  by rewrite e in neg.
have [k nk] := separated zz'.
rewrite -(negative_part zero_total) (bigID (fun c => margin c k == margin z k)) /=.
apply: leq_add.
  rewrite -(@balanced _ m (fun c => margin c k == margin z k)) ?zero_margins //.
  by rewrite (bigD1 z) //= leq_addr.
by rewrite (bigD1 z') /= ?leq_addr // eq_sym.
Qed.

(* BALL, l2. If every feature is published, m = 0, or there are x, y >= 1 with x + y <= a, each an
   absolute entry of m, such that the squared l2 norm is at most g(x) + g(y), where g(x) =
   floor(a/x) x^2 + (a mod x)^2. [ball_largest_entry] bounds x and y further. *)
Theorem ball_l2 : (\sum_c m c ^+ 2 = 0)%R \/
  exists z z', let x := positive m z in let y := negative m z' in
    [/\ 0 < x, 0 < y, x + y <= a
      & (\sum_c m c ^+ 2 <= Posz (packed_squares a x + packed_squares a y))%R].
Proof.
case: (posnP (positive_part m)) => [zero|pos].
  left; rewrite (l2_parts m); have := negative_part zero_total.
  rewrite zero => /eqP; rewrite sum_nat_eq0 => /forallP n0.
  move/eqP: zero; rewrite /positive_part sum_nat_eq0 => /forallP p0.
  by rewrite !big1 // => c _; [have := n0 c|have := p0 c] => /eqP ->.
right; have [c0 _ hc0] : exists2 c, true & 0 < positive m c.
  apply/exists_inP; apply: contraLR pos => /exists_inPn h; rewrite -leqNgt leqn0.
  by rewrite /positive_part sum_nat_eq0; apply/forallP=> c; have := h c isT; rewrite -leqNgt leqn0.
have [c1 _ hc1] : exists2 c, true & 0 < negative m c.
  apply/exists_inP; apply: contraLR pos => /exists_inPn h; rewrite -leqNgt leqn0.
  rewrite -(negative_part zero_total) sum_nat_eq0.
  by apply/forallP=> c; have := h c isT; rewrite -leqNgt leqn0.
have [z _ zmax] := @arg_maxnP _ c0 xpredT (positive m) isT.
have [z' _ zmax'] := @arg_maxnP _ c1 xpredT (negative m) isT.
have px : 0 < positive m z by apply: leq_trans hc0 (zmax c0 isT).
have py : 0 < negative m z' by apply: leq_trans hc1 (zmax' c1 isT).
exists z, z'; split=> //; first exact: ball_two_entries.
rewrite (l2_parts m) lez_nat; apply: leq_add; apply: squares_le => //.
- by move=> c; apply: zmax.
- by move=> c; apply: zmax'.
- by rewrite (negative_part zero_total).
Qed.

(* BALL, l2, SIMPLE FORM. If every feature is published, the squared l2 norm is at most a^2. *)
Theorem ball_l2_at_most_a_squared : (\sum_c m c ^+ 2 <= Posz (a ^ 2))%R.
Proof.
case: ball_l2 => [->//|[z [z' /= [x0 y0 xy h]]]]; apply: le_trans h _; rewrite lez_nat.
have := packed_squares_le a x0; have := packed_squares_le a y0; rewrite -mulnn.
by move: (packed_squares _ _) (packed_squares _ _) => g g' h' h; nia.
Qed.

End Bounds.

(* BALL, l2, WITH AN UNPUBLISHED FEATURE. Without any condition on margins the squared l2 norm is at
   most 2a^2. *)
Theorem ball_l2_unpublished (C : finType) (m : C -> int) a :
  (\sum_c m c = 0)%R -> positive_part m <= a -> (\sum_c m c ^+ 2 <= Posz (2 * a ^ 2))%R.
Proof.
move=> zero few; rewrite (l2_parts m) lez_nat mul2n -addnn.
have sq (h : C -> nat) : \sum_c h c <= a -> \sum_c h c ^ 2 <= a ^ 2.
  move=> ha; apply: (@leq_trans ((\sum_c h c) ^ 2)); last by rewrite leq_exp2r.
  rewrite -mulnn big_distrl /=; apply: leq_sum => c _; rewrite -mulnn leq_mul2l.
  by rewrite (bigD1 c) //= leq_addr orbT.
by apply: leq_add; apply: sq => //; rewrite (negative_part zero).
Qed.

(* FRACTIONAL EDGE COVERS. Cells have a label of every feature; margin k shows the features S k. If
   every feature lies in margins of total weight at least s, any two different cells differ in margins
   of total weight at least s: the condition of [ball_largest_entry]. *)
Theorem fractional_cover (F M K : finType) (S : K -> {set F}) (w : K -> nat) (s : nat)
    (margin := fun (c : {ffun F -> M}) k => [ffun f => if f \in S k then Some (c f) else None]) :
  (forall f, s <= \sum_(k | f \in S k) w k) ->
  forall c c', c != c' -> s <= \sum_(k | margin c k != margin c' k) w k.
Proof.
move=> covered c c' cc'; have [f nf] : exists f, c f != c' f.
  apply/existsP; apply: contraNT cc' => /existsPn h; apply/eqP/ffunP=> f.
  by have := h f; rewrite negbK => /eqP.
apply: leq_trans (covered f) _; rewrite big_mkcond [X in _ <= X]big_mkcond /=.
apply: leq_sum => k _; case: ifP => // fk.
have -> // : margin c k != margin c' k.
apply: contraNneq nf => /ffunP/(_ f); rewrite !ffunE fk => -[->]; exact: eqxx.
Qed.

(* TABLES OF DATASETS. Two datasets of cells with the same totals that differ in at most a records
   have tables whose difference is such a table m. *)
Theorem tables_in_ball (C K W : finType) (margin : C -> K -> W) n (X Y : dataset C n) a
    (m := fun c => (table Y c - table X c)%R) :
  same_totals margin X Y -> distance X Y <= a ->
  [/\ (\sum_c m c = 0)%R, forall k w, (\sum_(c | margin c k == w) m c = 0)%R & positive_part m <= a].
Proof.
move=> /same_totalsP same near.
have count (Z : dataset C n) (P : pred C) :
    (\sum_(c | P c) table Z c)%R = Posz #|[set i | P (Z i)]|.
  rewrite /table -Posz_sum; congr Posz; rewrite -sum1_card (partition_big Z P) /=.
    apply: eq_bigr => c Pc; rewrite -sum1_card; apply: eq_bigl => i; rewrite !inE.
    by case: eqP => [->|]; rewrite ?Pc ?andbF.
  by move=> i; rewrite inE.
split.
- by rewrite sumrB !count !cardsE subrr.
- move=> k w; rewrite sumrB !count; apply/eqP; rewrite subr_eq0; apply/eqP; congr Posz.
  by rewrite -/(total margin Y k w) -same.
apply: leq_trans near; rewrite /distance -(count_in_sum (changed X Y) Y); apply: leq_sum => c _.
have e : m c = (Posz (count_in (changed X Y) Y c) - Posz (count_in (changed X Y) X c))%R.
  by apply: table_change => i; rewrite inE negbK => /eqP.
by rewrite /positive e; move: (count_in _ _ _) (count_in _ _ _) => u v; case h : (_ - _)%R => //; lia.
Qed.

(* ---- parity ---- *)

Section Parity.
Variables (A J : finType) (r0 r1 : A) (m : A * J -> int).
Hypothesis different : r0 != r1.
(* Only two rows are inhabited, and both margins are zero. *)
Hypothesis two_rows : forall c, c.1 != r0 -> c.1 != r1 -> m c = 0%R.
Hypothesis zero_rows : forall r, (\sum_j m (r, j) = 0)%R.
Hypothesis zero_columns : forall j, (\sum_r m (r, j) = 0)%R.

(* PARITY. In a table with two blocks of which one has two inhabited values, both published at the
   table's depth, the positive part of every move is even. So an odd a may be replaced by a - 1. *)
Theorem parity : ~~ odd (positive_part m).
Proof.
have column j : m (r1, j) = (- m (r0, j))%R.
  have := zero_columns j; rewrite (bigD1 r0) //= (bigD1 r1) /=; last by rewrite eq_sym.
  rewrite big1 ?addr0 => [/eqP|r /andP[n0 n1]]; last exact: two_rows.
  by rewrite addrC addr_eq0 => /eqP.
have -> : positive_part m = \sum_j (positive m (r0, j) + negative m (r0, j)).
  rewrite /positive_part (eq_bigr (fun c => positive m (c.1, c.2))); last by move=> [].
  rewrite -(pair_bigA _ (fun r j => positive m (r, j))) /= exchange_big /=.
  apply: eq_bigr => j _; rewrite (bigD1 r0) //= (bigD1 r1) /=; last by rewrite eq_sym.
  rewrite big1 ?addn0 => [|r /andP[n0 n1]]; last by rewrite /positive two_rows.
  by congr addn; rewrite /positive /negative column; case: (m (r0, j)) => [[]|].
rewrite big_split /=.
have <- : \sum_j positive m (r0, j) = \sum_j negative m (r0, j).
  have := zero_rows r0; rewrite (eq_bigr (fun j => Posz (positive m (r0, j)) - Posz (negative m (r0, j)))%R).
    by rewrite sumrB => /eqP; rewrite subr_eq0 -!Posz_sum => /eqP[].
  by move=> j _; apply: parts.
by rewrite addnn odd_double.
Qed.
End Parity.

(* RELEASED TABLES UNDER THE BALL. Records have published values; the table shows the cell of a record.
   If every margin k of the table follows from the published value of one block b k, two datasets with
   the same totals, at most a records apart, have tables whose difference has zero margins and a
   positive part of at most a. So all bounds of this file hold for it, with the margins rolled up. *)
Theorem released_table_in_ball (R B W C K W' : finType) (published : R -> B -> W) (cell : R -> C)
    (margin : C -> K -> W') (b : K -> B) (roll_up : K -> W -> W') n (X Y : dataset R n) a
    (m := fun c => (table (fun i => cell (Y i)) c - table (fun i => cell (X i)) c)%R) :
  (forall r k, margin (cell r) k = roll_up k (published r (b k))) ->
  same_totals published X Y -> distance X Y <= a ->
  [/\ (\sum_c m c = 0)%R, forall k w, (\sum_(c | margin c k == w) m c = 0)%R & positive_part m <= a].
Proof.
move=> rolled /same_totalsP same near.
pose shown (Z : dataset R n) : dataset C n := [ffun i => cell (Z i)].
have tableE (Z : dataset R n) c : table (fun i => cell (Z i)) c = table (shown Z) c.
  by rewrite /table; congr Posz; apply: eq_card => i; rewrite !inE ffunE.
have mE : m =1 (fun c => table (shown Y) c - table (shown X) c)%R by move=> c; rewrite /m !tableE.
have same' : same_totals margin (shown X) (shown Y).
  apply/same_totalsP=> k w.
  have E (Z : dataset R n) : Posz (total margin (shown Z) k w) =
      table (fun i => roll_up k (published (Z i) (b k))) w.
    by rewrite /table /total; congr Posz; apply: eq_card => i; rewrite !inE ffunE rolled.
  have := @table_of_totals _ _ _ (fun i => published (X i) (b k)) (fun i => published (Y i) (b k))
    (roll_up k) (same (b k)) w.
  by rewrite -!E => -[].
have near' : distance (shown X) (shown Y) <= a.
  apply: leq_trans near; apply: subset_leq_card; apply/subsetP=> i; rewrite !inE !ffunE.
  by apply: contraNneq => ->.
have [h1 h2 h3] := tables_in_ball same' near'; split.
- by rewrite (eq_bigr _ (fun c _ => mE c)).
- by move=> k w; rewrite (eq_bigr _ (fun c _ => mE c)).
by apply: leq_trans h3; apply: leq_sum => c _; rewrite /positive mE.
Qed.
